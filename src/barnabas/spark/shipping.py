"""Our own code as one zip for the workers of a remote master, where nobody has installed it.

The zip is pure Python. What it needs beside itself holds compiled code and must be installed on the workers; that is
checked when a session begins, because the error of a task that cannot import it is long and says little.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from barnabas import __version__
from barnabas.spark.cache import write_whole

PACKAGES = ("barnabas", "pyspark_barnabas")
NEEDED = ("crc32c", "cramjam", "msgspec", "numpy", "pyarrow")
"""Compiled; a worker must have them."""
SAME_TIME = (1980, 1, 1, 0, 0, 0)
"""In the zip every file is of the same age: equal code makes equal zips."""


def package_zip(cache: Path) -> Path:
    """Made once for every state of the code."""
    files = [(name, path.read_bytes()) for name, path in package_files()]
    known = hashlib.sha256()
    for name, content in files:
        known.update(f"{name}\0{len(content)}\0".encode() + content)
    name = f"barnabas-{__version__}-{known.hexdigest()[:16]}.zip"
    path = cache / "packages" / name
    return path if path.exists() else write_whole(path, zipped(files))


def package_files() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        spec = find_spec(package)
        for root in sorted((spec.submodule_search_locations or ()) if spec else ()):
            for path in sorted(Path(root).rglob("*.py")):
                yield f"{package}/{path.relative_to(root).as_posix()}", path


def zipped(files: list[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(zipfile.ZipInfo(name, SAME_TIME), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def missing_here() -> list[str]:
    """Which of the needed modules this Python cannot find. Runs on the workers."""
    return [name for name in NEEDED if find_spec(name) is None]
