"""The cache directory: $XDG_CACHE_HOME/barnabas, or ~/.cache/barnabas.

Every file can be deleted at any time; it is created again when needed. Files are written atomically: to a temporary
file in the same directory, synced, and renamed. Neither a crash nor a concurrent process leaves a partial file.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    configured = Path(environment.get("XDG_CACHE_HOME", ""))
    # The XDG specification requires that a relative path is ignored.
    root = configured if configured.is_absolute() else Path.home() / ".cache"
    return root / "barnabas"


def digest(*parts: object) -> str:
    """Return a digest of 16 hexadecimal characters."""
    return hashlib.sha256("\0".join(str(part) for part in parts).encode()).hexdigest()[:16]


def write_if_missing(path: Path, content: bytes, *, mode: int = 0o644) -> Path:
    """Write a file atomically, unless it exists. Returns its path."""
    if not path.exists():
        replace_file(path, content, mode=mode)
    return path


def replace_file(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write or overwrite a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    try:
        with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(content)
        move_into_place(Path(name), path, mode=mode)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def move_into_place(written: Path, path: Path, *, mode: int = 0o644) -> None:
    """Sync a temporary file and rename it to `path`."""
    descriptor = os.open(written, os.O_RDONLY)
    try:
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    written.replace(path)
