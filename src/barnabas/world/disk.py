"""The real disk. Every OSError ends here: what goes on is StorageError, OutOfSpace or DirectoryLocked.

A log has thousands of files and few of them are busy, so a `RealFile` is a name, a size and, while it is in use, a
descriptor. At most `descriptors` are open at once; opening one more closes one that nobody touched since the last look
around. Sizes are kept in memory and writes go to a position: a write that failed halfway is cut back, and if even that
fails the next write covers it.

fsync runs in a few threads of its own, on duplicates of the descriptors, so that closing one here does not pull it from
under a thread; so does the last close of a large file that was removed. Nothing but descriptors goes to these threads.
Whoever else works on files in a thread, as the log cleaner does, has a disk of its own (`aside`).
"""

# Paths are strings here, as the port says: thousands of Path objects a second would be felt.
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

NO_DESCRIPTOR = -1
CLOSED = -2
DESCRIPTORS = 2048
DESCRIPTORS_ASIDE = 16
THREADS = 4
DUPLICATES_MAX = 2 * THREADS
"""A disk that is slow must not cost a descriptor for every file that waits for it."""
LARGE_BYTES = 1 << 20
PARTS_MAX = 512  # below IOV_MAX everywhere

sync_data = getattr(os, "fdatasync", os.fsync)


class RealFile:
    __slots__ = ("bytes_long", "descriptor", "disk", "name", "touched")

    def __init__(self, disk: RealDisk, path: str, descriptor: int, size: int) -> None:
        self.disk = disk
        self.name = path
        self.descriptor = descriptor
        self.bytes_long = size
        self.touched = False

    @property
    def path(self) -> str:
        return self.name

    def size(self) -> int:
        return self.bytes_long

    def append(self, parts: Sequence[Buffer]) -> None:
        self.touched = True
        descriptor = self.descriptor
        if descriptor < 0:
            descriptor = self.disk.reopen(self)
        position = self.bytes_long
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
            self.cut_back(descriptor)
            raise to_storage_error(self.name, error) from error
        self.bytes_long = position + wanted

    def write_rest(self, descriptor: int, parts: Sequence[Buffer], written: int) -> None:
        """A write may stop short of its end: at a full disk, or at the system's limit for one call."""
        rest = memoryview(b"".join(parts))[written:]
        position = self.bytes_long + written
        while rest:
            count = os.pwrite(descriptor, rest, position)
            position += count
            rest = rest[count:]

    def cut_back(self, descriptor: int) -> None:
        try:
            os.ftruncate(descriptor, self.bytes_long)
        except OSError:
            return  # The first error is the one to tell; the next append writes over these bytes.

    def read(self, position: int, size: int) -> bytes:
        try:
            data = os.pread(self.fileno(), size, position)
            if len(data) < size and position + len(data) < self.bytes_long:
                data = self.read_rest(data, position, size)
        except OSError as error:
            raise to_storage_error(self.name, error) from error
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
        try:
            os.ftruncate(self.fileno(), size)
        except OSError as error:
            raise to_storage_error(self.name, error) from error
        self.bytes_long = size

    def rename(self, path: str) -> None:
        self.disk.rename(self.name, path)
        self.name = path

    def fileno(self) -> int:
        self.touched = True
        if self.descriptor < 0:
            return self.disk.reopen(self)
        return self.descriptor

    def close(self) -> None:
        """For good: the name may belong to another file by now, so it is not opened again."""
        descriptor, self.descriptor = self.descriptor, CLOSED
        if descriptor >= 0:
            self.disk.opened.pop(self, None)
            os.close(descriptor)


class RealLock:
    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def release(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = NO_DESCRIPTOR


class Replaced:
    """How often somebody has asked for it; and whoever does it holds the lock, so that the last one is the last."""

    def __init__(self) -> None:
        self.count = 0
        self.writing = Lock()


class RealDisk:
    """The file system, through a bounded number of descriptors."""

    def __init__(self, descriptors: int = DESCRIPTORS) -> None:
        # Sockets need descriptors, too: take no more than half of what the process may have.
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if allowed != resource.RLIM_INFINITY:
            descriptors = max(16, min(descriptors, allowed // 2))
        self.descriptors = descriptors
        self.opened: dict[RealFile, None] = {}
        self.duplicates = asyncio.Semaphore(DUPLICATES_MAX)
        self.threads: ThreadPoolExecutor | None = None
        self.replaced: dict[str, Replaced] = {}
        """By path, of files that are replaced in threads, too."""

    def open(self, path: str, *, create: bool = False) -> File:
        """A file that exists is opened when it is first used."""
        with storage_errors(path):
            if not create:
                return RealFile(self, path, NO_DESCRIPTOR, os.stat(path).st_size)
            self.make_room()
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            file = RealFile(self, path, descriptor, os.fstat(descriptor).st_size)
            self.opened[file] = None
            return file

    def reopen(self, file: RealFile) -> int:
        if file.descriptor == CLOSED:
            raise StorageError(file.name, "the file was closed")
        with storage_errors(file.name):
            self.make_room()
            file.descriptor = os.open(file.name, os.O_RDWR | os.O_CLOEXEC)
            self.opened[file] = None
            return file.descriptor

    def make_room(self) -> None:
        """Second chance: walk from the longest open on; who was touched since the last walk goes to the end."""
        while len(self.opened) >= self.descriptors:
            file = next(iter(self.opened))
            del self.opened[file]
            if file.touched:
                file.touched = False
                self.opened[file] = None
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
        return RealDisk(DESCRIPTORS_ASIDE)

    def read_bytes(self, path: str) -> bytes:
        with storage_errors(path), open(path, "rb") as file:
            return file.read()

    def replace_bytes(self, path: str, data: bytes, *, sync: bool = True) -> None:
        if (replaced := self.replaced.get(path)) is None:
            self.write_over(path, data, sync=sync)
            return
        replaced.count += 1
        with replaced.writing:
            self.write_over(path, data, sync=sync)

    def prepare_replace(self, path: str) -> Callable[[bytes], None]:
        replaced = self.replaced.setdefault(path, Replaced())
        replaced.count += 1
        number = replaced.count

        def replace(data: bytes) -> None:
            with replaced.writing:
                if replaced.count == number:
                    self.write_over(path, data, sync=False)

        return replace

    def write_over(self, path: str, data: bytes, *, sync: bool) -> None:
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
            self.discard(temporary)
            raise to_storage_error(path, error) from error

    def discard(self, path: str) -> None:
        try:
            os.unlink(path)
        except OSError:
            return

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
        """The name goes at once. What takes long with a large file is to give back its blocks and cached pages, which
        the kernel does when the last descriptor is closed: a thread closes it."""
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
            # Of two opens of one file only one gets it, so this also keeps out a second broker in this process.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise to_storage_error(path, error) from error
            raise DirectoryLocked(
                path,
                f"another broker is using {os.path.dirname(path)}: stop it, or give this one its own log.dirs",
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
        for directory in directories:
            with storage_errors(directory):
                sync_directory(directory)

    async def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        loop = asyncio.get_running_loop()
        for file in files:
            async with self.duplicates:
                if not self.exists(file.path) and self.exists(os.path.dirname(file.path)):
                    continue  # removed while others were synced: there is nothing left to keep
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
        """Wait for the threads and give all descriptors back."""
        if self.threads is not None:
            self.threads.shutdown()
            self.threads = None
        for file in list(self.opened):
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
    try:
        yield
    except OSError as error:
        raise to_storage_error(path, error) from error


def to_storage_error(path: str, error: OSError) -> StorageError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutOfSpace(path, "no space left on the volume")
    return StorageError(path, error.strerror or reason(error))
