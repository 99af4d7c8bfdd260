"""The files of an archive on disk: lock, manifest, leftovers, staging directory, checksums.

A run holds the lock of the directory. It writes into a staging directory, moves the files into place and replaces the
manifest (see manifest.py). The next run removes what a killed run left.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import crc32c as crc32c_library
from msgspec.structs import replace

from barnabas.errors import ConfigError
from barnabas.jobs.errors import DamagedArchive, JobRefused
from barnabas.jobs.manifest import (
    NAME,
    ArchivedFile,
    Manifest,
    decode_manifest,
    encode_manifest,
    published_path,
)

LOCK = "_lock"
STAGING = "_staging-"
REMOVED = ".removed"
NEW_MANIFEST = f"{NAME}.new"
DATA_FILE = re.compile(r"date=[^/]+/partition=\d+/\d{20}\.parquet")
PIECE_BYTES = 1 << 20


def parse_directory(option: str, text: str) -> Path:
    """Return a local path. Raises ConfigError for the URL of another file system."""
    url = urlsplit(text)
    if url.scheme == "file":
        return Path(unquote(url.path))
    if "://" in text:
        why = f"{url.scheme} is not supported; use a directory that is mounted on this machine"
        raise ConfigError(option, why)
    return Path(text)


class ArchiveDirectory:
    """The directory of one archived topic."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # ---- manifest -------------------------------------------------------------------------------------------------

    def manifest(self) -> Manifest | None:
        """Return the manifest, or None if there is no archive. Raises JobRefused if the directory has other files."""
        path = self.path / NAME
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            self.check_unused()
            return None
        except OSError as error:
            why = f"{path} cannot be read: {error.strerror}"
            raise JobRefused(f"{why}; use another directory, or change its permissions") from None
        return decode_manifest(data, str(path))

    def check_unused(self) -> None:
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise JobRefused(f"{self.path} is not a directory; use another one")
        names = sorted(found.name for found in self.path.iterdir() if not is_temporary(found.name))
        if names:
            why = f"{self.path} has no {NAME}, but other files ({names[0]})"
            hint = "restore the manifest from a backup, or use another directory"
            raise JobRefused(f"{why}; {hint}")

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest. After a crash, the old or the new one is there, complete."""
        new = self.path / NEW_MANIFEST
        with new.open("wb") as file:
            file.write(encode_manifest(manifest))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path / NAME)
        sync_path(self.path)

    # ---- one run --------------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the directory, which is created if it does not exist. Raises JobRefused."""
        with report_disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / LOCK).open("wb")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                why = f"another run archives into {self.path}"
                raise JobRefused(f"{why}; wait for it, or stop it") from None
            yield

    def new_staging(self) -> Path:
        """Create a staging directory."""
        staging = self.path / f"{STAGING}{uuid4().hex[:12]}"
        staging.mkdir(parents=True)
        return staging

    def remove_leftovers(self, manifest: Manifest | None) -> int:
        """Remove the files of killed runs. Returns their number."""
        found = leftovers(self.files(), manifest)
        for path in found:
            (self.path / path).unlink()
        for staging in self.path.glob(f"{STAGING}*"):
            remove_staging(staging)
        for directory in (*self.path.glob("date=*/partition=*"), *self.path.glob("date=*")):
            if not any(directory.iterdir()):
                directory.rmdir()
        return len(found)

    def files(self) -> list[str]:
        """Return the relative paths of all files outside staging directories."""
        return sorted(
            path.relative_to(self.path).as_posix()
            for path in (*self.path.glob("date=*/partition=*/*"), *self.path.glob(NEW_MANIFEST))
        )

    def publish(self, staging: Path, files: Sequence[ArchivedFile]) -> list[ArchivedFile]:
        """Move staged files into place. Returns them with their final paths."""
        published = [replace(file, path=published_path(file.path)) for file in files]
        directories = {self.path}
        for staged, file in zip(files, published, strict=True):
            target = self.path / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            (staging / staged.path).rename(target)
            directories |= {target.parent, target.parent.parent}
        for directory in sorted(directories):
            sync_path(directory)
        return published


@contextmanager
def report_disk_errors(directory: Path) -> Iterator[None]:
    """Raise JobRefused if the block cannot write, for example because the disk is full."""
    try:
        yield
    except OSError as error:
        hint = "use another directory, or change its permissions"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            hint = "make room, and run the command again"
        # Arrow's errors have a long text of their own.
        why = os.strerror(error.errno) if error.errno else str(error)
        raise JobRefused(f"{directory} cannot be written: {why}; {hint}") from None


def find_archive(directory: Path) -> ArchiveDirectory:
    """Return the archive in a directory, or in its only subdirectory with one. Raises JobRefused."""
    if (directory / NAME).exists():
        return ArchiveDirectory(directory)
    found = sorted(path.parent for path in directory.glob(f"*/{NAME}"))
    if not found:
        hint = "name the directory that `barnabas topics archive --to` wrote"
        raise JobRefused(f"{directory} has no archive ({NAME}); {hint}")
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        hint = f"name one of them, as in {found[0]}"
        raise JobRefused(f"{directory} has the archives of several topics ({names}); {hint}")
    return ArchiveDirectory(found[0])


def remove_staging(staging: Path) -> None:
    """Remove a staging directory. A task of a killed run may still write there, but finds it no more."""
    renamed = staging if staging.suffix == REMOVED else staging.with_suffix(REMOVED)
    staging.rename(renamed)
    shutil.rmtree(renamed)


def is_temporary(name: str) -> bool:
    return name in (LOCK, NEW_MANIFEST) or name.startswith(STAGING)


def leftovers(paths: Iterable[str], manifest: Manifest | None) -> list[str]:
    """Return the paths that an archive run wrote, but that are not in the manifest. Other files are not ours."""
    listed = {file.path for file in manifest.files} if manifest else set()
    return [
        path
        for path in paths
        if path == NEW_MANIFEST or (DATA_FILE.fullmatch(path) and path not in listed)
    ]


# ---- one file, in a task ----------------------------------------------------------------------------------------


def checksum(path: str) -> tuple[int, int]:
    """Return the size and the CRC-32C of a file."""
    size, crc = 0, 0
    with Path(path).open("rb", buffering=0) as file:
        while piece := file.read(PIECE_BYTES):
            size += len(piece)
            crc = crc32c_library.crc32c(piece, crc)
    return size, crc


def check_file(root: str, file: ArchivedFile) -> str | None:
    """Return what is wrong with a file of an archive, or None."""
    path = str(Path(root) / file.path)
    try:
        size = Path(path).stat().st_size
        if size != file.bytes:
            return f"{path} has {size} bytes, but the manifest says {file.bytes}"
        if checksum(path)[1] != file.crc32c:
            return f"{path} was changed: its checksum is not that of the manifest"
    except FileNotFoundError:
        return f"{path} is missing"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return None


def raise_if_damaged(problems: Sequence[str | None]) -> None:
    """Raise DamagedArchive for the results of `check_file`."""
    found = [problem for problem in problems if problem is not None]
    if found:
        more = f" (and {len(found) - 1} more files are damaged)" if len(found) > 1 else ""
        raise DamagedArchive(f"{found[0]}{more}; restore the archive from a backup")


def sync_path(path: Path) -> None:
    """Make the entries of a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
