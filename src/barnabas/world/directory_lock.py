"""One process at a time: the lock of a directory, and who has it.

The lock goes with the process that holds it, however that ends. The file that carries it stays.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from barnabas.errors import DirectoryLocked, StorageError
from barnabas.retry import Backoff

LOCK = ".lock"
LOCK_TRIES = 5
LOCK_PAUSE_S = 0.01


def acquire_lock(directory: str, what: str) -> int:
    """The descriptor that holds the lock; DirectoryLocked if another process has it."""
    path = str(Path(directory, LOCK))
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageError(path, f"cannot be opened: {error.strerror}") from error
    backoff = Backoff(LOCK_PAUSE_S, LOCK_PAUSE_S, random=Random(os.getpid()))
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            return descriptor
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                os.close(descriptor)
                raise StorageError(path, f"cannot be locked: {error.strerror}") from error
        # Somebody who only asks whether the lock is held has it for a moment (`is_held`).
        time.sleep(backoff.next_s())
    holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
    os.close(descriptor)
    raise DirectoryLocked(
        directory,
        f"another process{f' (pid {holder})' if holder else ''} has {what} open; "
        "stop it first, or use another directory (--data)",
    )


def release_lock(descriptor: int) -> None:
    os.close(descriptor)


def is_held(directory: str) -> bool:
    """Whether a process has this directory open."""
    try:
        descriptor = os.open(Path(directory, LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


@contextmanager
def locked(directory: Path, what: str) -> Iterator[None]:
    """The directory is made if it is missing."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(str(directory), f"cannot be created: {error.strerror}") from error
    descriptor = acquire_lock(str(directory), what)
    try:
        yield
    finally:
        release_lock(descriptor)
