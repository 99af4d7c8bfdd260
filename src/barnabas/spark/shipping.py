"""This package as a zip file, for the workers of a remote master.

The zip holds only Python code. The workers must have the compiled dependencies. A session checks that at its start,
because the import error of a failed task is long and unclear.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from barnabas import __version__
from barnabas.spark.cache import write_if_missing

PACKAGES = ("barnabas", "pyspark_barnabas")
REQUIRED_MODULES = ("crc32c", "cramjam", "msgspec", "numpy", "pyarrow")
"""Compiled dependencies that every worker must have."""
ZIP_TIME = (1980, 1, 1, 0, 0, 0)
"""Modification time of every file in the zip, so that equal code gives equal zips."""


def package_zip(cache: Path) -> Path:
    """Return the path of the zip, which is written if it is missing. Its name contains a digest of the code."""
    files = [(name, path.read_bytes()) for name, path in package_files()]
    content_hash = hashlib.sha256()
    for name, content in files:
        content_hash.update(f"{name}\0{len(content)}\0".encode() + content)
    name = f"barnabas-{__version__}-{content_hash.hexdigest()[:16]}.zip"
    path = cache / "packages" / name
    return path if path.exists() else write_if_missing(path, zip_files(files))


def package_files() -> Iterator[tuple[str, Path]]:
    """The sources of the packages of this process.

    The packages are imported here, before Spark adds the zip to sys.path: it deletes its copy of the zip when a session
    stops, and a later session would not find them.
    """
    for package in PACKAGES:
        for root in sorted(import_module(package).__path__):
            for path in sorted(Path(root).rglob("*.py")):
                yield f"{package}/{path.relative_to(root).as_posix()}", path


def zip_files(files: list[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(zipfile.ZipInfo(name, ZIP_TIME), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def missing_modules() -> list[str]:
    """Return the required modules that this Python does not have. Runs on the workers."""
    return [name for name in REQUIRED_MODULES if find_spec(name) is None]
