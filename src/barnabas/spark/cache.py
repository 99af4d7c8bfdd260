"""Where things that are made once are kept: beneath $XDG_CACHE_HOME/barnabas, or ~/.cache/barnabas.

Everything here can be thrown away at any time and is made again. A file appears under its name when it is whole and on
the disk, or not at all: it is written beside its place and renamed, so neither a crash nor a second process that makes
the same file leaves a broken one.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    given = environment.get("XDG_CACHE_HOME", "")
    # The specification of these directories has a relative path ignored.
    root = Path(given) if given and Path(given).is_absolute() else Path.home() / ".cache"
    return root / "barnabas"


def digest(*parts: object) -> str:
    """Sixteen characters that change when any part does."""
    return hashlib.sha256("\0".join(str(part) for part in parts).encode()).hexdigest()[:16]


def write_whole(path: Path, content: bytes, *, mode: int = 0o644) -> Path:
    """Put the content in place, unless it is there already."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(content)
        move_into_place(Path(name), path, mode=mode)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise
    return path


def move_into_place(made: Path, path: Path, *, mode: int = 0o644) -> None:
    descriptor = os.open(made, os.O_RDONLY)
    try:
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    made.replace(path)
