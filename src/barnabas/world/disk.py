"""The real disk. It turns every OSError into StorageError, OutOfSpace or DirectoryLocked.

A broker has thousands of files, of which few are in use. So a `RealFile` is a name, a size and, while it is in use, a
descriptor. At most `descriptors` are open; opening another one closes that of an idle file (`close_idle_files`). Sizes
are kept in memory, and writes go to an explicit position. A partial write is truncated; if the truncation fails too,
the next write overwrites it.

fsync runs in a few threads, on duplicates of the descriptors, so that a descriptor can be closed at any time. The same
threads close large removed files, because that is slow (`unlink`). Other code that works on files in a thread, such as
the log cleaner, uses its own disk (`for_thread`).
"""

# Paths are strings, as in ports.py: creating thousands of Path objects per second would be slow.
# ruff: noqa: PTH103, PTH105, PTH106, PTH108, PTH110, PTH112, PTH116, PTH120, PTH123, PTH208

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Lock

from barnabas.errors import DirectoryLocked, OutOfSpace, StorageError, reason
from barnabas.world.ports import Buffer, DirectoryLock, File

NO_DESCRIPTOR = -1  # not open; the next use reopens the file
CLOSED = -2  # closed permanently
DESCRIPTORS = 2048
THREAD_DESCRIPTORS = 16
THREADS = 4
DUPLICATES_MAX = 2 * THREADS
"""Limit of duplicated descriptors: a slow disk must not take one for every file that waits for fsync."""
LARGE_BYTES = 1 << 20  # a removed file of this size is closed in a thread
PARTS_MAX = 512  # per system call; below IOV_MAX on every system

sync_data = getattr(os, "fdatasync", os.fsync)


class RealFile:
    """One file of a RealDisk. Each use sets `touched`, and `RealDisk.close_idle_files` clears it."""

    __slots__ = ("descriptor", "disk", "known_size", "path", "touched")

    def __init__(self, disk: RealDisk, path: str, descriptor: int, size: int) -> None:
        self.disk = disk
        self.path = path
        self.descriptor = descriptor
        self.known_size = size
        self.touched = False

    def size(self) -> int:
        return self.known_size

    def append(self, parts: Sequence[Buffer]) -> None:
        self.touched = True
        descriptor = self.descriptor
        if descriptor < 0:
            descriptor = self.disk.reopen(self)
        position = self.known_size
        try:
            if len(parts) == 1:
                part = parts[0]
                wanted = len(part)
                written = os.pwrite(descriptor, part, position)
            else:
                wanted = sum(map(len, parts))
                written = os.pwritev(descriptor, parts[:PARTS_MAX], position)
            if written != wanted:
                self.write_rest(descriptor, parts, written)
        except OSError as error:
            # Report this error even if the file cannot be truncated: the next append overwrites these bytes.
            with suppress(OSError):
                os.ftruncate(descriptor, position)
            raise to_storage_error(self.path, error) from error
        self.known_size = position + wanted

    def write_rest(self, descriptor: int, parts: Sequence[Buffer], written: int) -> None:
        """Write the rest after a partial write, caused by a full disk or by the system's limit for one call."""
        rest = memoryview(b"".join(parts))[written:]
        position = self.known_size + written
        while rest:
            count = os.pwrite(descriptor, rest, position)
            position += count
            rest = rest[count:]

    def read(self, position: int, size: int) -> bytes:
        try:
            data = os.pread(self.fileno(), size, position)
            if len(data) < size and position + len(data) < self.known_size:
                data = self.read_rest(data, position, size)
        except OSError as error:
            raise to_storage_error(self.path, error) from error
        return data

    def read_rest(self, data: bytes, position: int, size: int) -> bytes:
        parts = [data]
        have = len(data)
        while have < size:
            part = os.pread(self.fileno(), size - have, position + have)
            if not part:
                break
            parts.append(part)
            have += len(part)
        return b"".join(parts)

    def truncate(self, size: int) -> None:
        with storage_errors(self.path):
            os.ftruncate(self.fileno(), size)
        self.known_size = size

    def rename(self, path: str) -> None:
        self.disk.rename(self.path, path)
        self.path = path

    def moved(self, path: str) -> None:
        self.path = path

    def fileno(self) -> int:
        self.touched = True
        if self.descriptor < 0:
            return self.disk.reopen(self)
        return self.descriptor

    def close(self) -> None:
        """Close the file permanently. It cannot be reopened, because its name may belong to another file by then."""
        descriptor, self.descriptor = self.descriptor, CLOSED
        if descriptor >= 0:
            self.disk.open_files.pop(self, None)
            os.close(descriptor)


class RealLock:
    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def release(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = NO_DESCRIPTOR


class ReplaceState:
    """Orders the replacements of one file, so that the last requested one wins.

    `count` is the number of requests so far. A thread has `write_lock` while it writes.
    """

    def __init__(self) -> None:
        self.count = 0
        self.write_lock = Lock()


class RealDisk:
    def __init__(self, descriptors: int = DESCRIPTORS) -> None:
        # Files may use half of the process's descriptors. The other half is for sockets.
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if allowed != resource.RLIM_INFINITY:
            descriptors = max(16, min(descriptors, allowed // 2))
        self.descriptors = descriptors
        self.open_files: dict[RealFile, None] = {}
        self.duplicates = asyncio.Semaphore(DUPLICATES_MAX)
        self.threads: ThreadPoolExecutor | None = None
        self.replace_states: dict[str, ReplaceState] = {}
        """By path; only files that are also replaced in threads (`prepare_replace`)."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open or create a file. Without `create`, its descriptor is opened on first use."""
        with storage_errors(path):
            if not create:
                return self.new_file(path, NO_DESCRIPTOR, os.stat(path).st_size)
            self.close_idle_files()
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            file = self.new_file(path, descriptor, os.fstat(descriptor).st_size)
            self.open_files[file] = None
            return file

    def new_file(self, path: str, descriptor: int, size: int) -> RealFile:
        return RealFile(self, path, descriptor, size)

    def reopen(self, file: RealFile) -> int:
        if file.descriptor == CLOSED:
            raise StorageError(file.path, "the file was closed")
        with storage_errors(file.path):
            self.close_idle_files()
            file.descriptor = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
            self.open_files[file] = None
            return file.descriptor

    def close_idle_files(self) -> None:
        """Close descriptors until another one may be opened, by the second-chance algorithm.

        Starts with the oldest entry. A file that was used since it was last visited moves to the end and stays open.
        """
        while len(self.open_files) >= self.descriptors:
            file = next(iter(self.open_files))
            del self.open_files[file]
            if file.touched:
                file.touched = False
                self.open_files[file] = None
            else:
                descriptor, file.descriptor = file.descriptor, NO_DESCRIPTOR
                os.close(descriptor)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def list(self, path: str) -> list[str]:
        with storage_errors(path):
            return sorted(os.listdir(path))

    def size(self, path: str) -> int:
        with storage_errors(path):
            return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        with storage_errors(path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        with storage_errors(path):
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def for_thread(self) -> RealDisk:
        return RealDisk(THREAD_DESCRIPTORS)

    def read_bytes(self, path: str) -> bytes:
        with storage_errors(path), open(path, "rb") as file:
            return file.read()

    def replace_bytes(self, path: str, data: bytes, *, sync: bool = True) -> None:
        if (state := self.replace_states.get(path)) is None:
            self.write_and_rename(path, data, sync=sync)
            return
        state.count += 1
        with state.write_lock:
            self.write_and_rename(path, data, sync=sync)

    def prepare_replace(self, path: str) -> Callable[[bytes], None]:
        state = self.replace_states.setdefault(path, ReplaceState())
        state.count += 1
        number = state.count

        def replace(data: bytes) -> None:
            with state.write_lock:
                if state.count == number:
                    self.write_and_rename(path, data, sync=False)

        return replace

    def write_and_rename(self, path: str, data: bytes, *, sync: bool) -> None:
        temporary = path + ".tmp"
        try:
            descriptor = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644
            )
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                if sync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
            if sync:
                sync_directory(os.path.dirname(path))
        except OSError as error:
            with suppress(OSError):
                os.unlink(temporary)
            raise to_storage_error(path, error) from error

    def make_directory(self, path: str) -> None:
        with storage_errors(path):
            os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        with storage_errors(source):
            os.replace(source, target)

    def remove(self, path: str) -> None:
        with storage_errors(path), suppress(FileNotFoundError):
            self.unlink(path)

    def remove_tree(self, path: str) -> None:
        for directory, _, names in os.walk(path, topdown=False):
            for name in names:
                with storage_errors(f"{directory}/{name}"), suppress(FileNotFoundError):
                    os.unlink(f"{directory}/{name}")
            with storage_errors(directory), suppress(FileNotFoundError):
                os.rmdir(directory)

    def unlink(self, path: str) -> None:
        """Remove a name immediately, and free the blocks of a large file in a thread.

        The kernel frees blocks and cached pages when the last descriptor is closed, which is slow for a large file.
        """
        descriptor = NO_DESCRIPTOR
        if os.lstat(path).st_size >= LARGE_BYTES:
            with suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.unlink(path)
        finally:
            if descriptor != NO_DESCRIPTOR:
                self.pool().submit(os.close, descriptor)

    def lock(self, path: str) -> DirectoryLock:
        with storage_errors(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # A flock belongs to the open file, not to the process: it also excludes a second broker in this process.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise to_storage_error(path, error) from error
            raise DirectoryLocked(
                path,
                f"another broker is using {os.path.dirname(path)}: stop it, or set another log.dirs for this one",
            ) from error
        return RealLock(descriptor)

    def space(self, path: str) -> tuple[int, int]:
        with storage_errors(path):
            volume = os.statvfs(path)
            return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def sync_now(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        for file in files:
            with storage_errors(file.path):
                sync_data(file.fileno())
        sync_directories(directories)

    async def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        loop = asyncio.get_running_loop()
        for file in files:
            async with self.duplicates:
                if not self.exists(file.path) and self.exists(os.path.dirname(file.path)):
                    continue  # the file was removed meanwhile
                with storage_errors(file.path):
                    descriptor = os.dup(file.fileno())
                await loop.run_in_executor(self.pool(), sync_in_thread, file.path, descriptor)
        if directories:
            await loop.run_in_executor(self.pool(), sync_directories, tuple(directories))

    def pool(self) -> ThreadPoolExecutor:
        if self.threads is None:
            self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="barnabas-disk")
        return self.threads

    def close(self) -> None:
        """Wait for the threads and close all descriptors."""
        if self.threads is not None:
            self.threads.shutdown()
            self.threads = None
        for file in list(self.open_files):
            file.close()


def sync_in_thread(path: str, descriptor: int) -> None:
    try:
        with storage_errors(path):
            sync_data(descriptor)
    finally:
        os.close(descriptor)


def sync_directories(paths: Sequence[str]) -> None:
    for path in paths:
        with storage_errors(path):
            sync_directory(path)


def sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def storage_errors(path: str) -> Iterator[None]:
    """Turn an OSError in the `with` block into a StorageError."""
    try:
        yield
    except OSError as error:
        raise to_storage_error(path, error) from error


def to_storage_error(path: str, error: OSError) -> StorageError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutOfSpace(path, "no space left on the volume")
    return StorageError(path, error.strerror or reason(error))
