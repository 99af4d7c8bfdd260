"""A lock file that limits a directory to one process.

The kernel releases the lock when the process ends, for any reason. The file stays; it contains the pid of the last
holder.
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

LOCK_FILE = ".lock"
PROBE_TRIES = 500
PROBE_PAUSE_S = 0.01
"""`is_locked` in another process holds a shared lock for a moment, longer if that process has to wait for a core."""


def acquire_lock(directory: str, what: str) -> int:
    """Lock the directory and return the descriptor that owns the lock, for `release_lock`.

    Raises DirectoryLocked if another process has the lock. `what` names the directory in that error.
    """
    path = str(Path(directory, LOCK_FILE))
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageError(path, f"cannot be opened: {error.strerror}") from error
    backoff = Backoff(PROBE_PAUSE_S, PROBE_PAUSE_S, random=Random(os.getpid()))
    for _ in range(PROBE_TRIES):
        try:
            if try_lock(descriptor, fcntl.LOCK_EX):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
                return descriptor
            if not try_lock(descriptor, fcntl.LOCK_SH):
                break
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        except OSError as error:
            os.close(descriptor)
            raise StorageError(path, f"cannot be locked: {error.strerror}") from error
        time.sleep(backoff.next_s())
    holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
    os.close(descriptor)
    raise DirectoryLocked(
        directory,
        f"another process{f' (pid {holder})' if holder else ''} has {what} open; "
        "stop it first, or use another directory (--data)",
    )


def try_lock(descriptor: int, kind: int) -> bool:
    """Return False if another process has a lock that excludes this one."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        return False
    return True


def release_lock(descriptor: int) -> None:
    os.close(descriptor)


def is_locked(directory: str) -> bool:
    """Return whether a process has locked this directory. False if there is no lock file."""
    try:
        descriptor = os.open(Path(directory, LOCK_FILE), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(descriptor, fcntl.LOCK_SH)
    except OSError:
        return True
    finally:
        os.close(descriptor)


@contextmanager
def hold_lock(directory: Path, what: str) -> Iterator[None]:
    """Lock a directory for a `with` block. Creates the directory if it is missing."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(str(directory), f"cannot be created: {error.strerror}") from error
    descriptor = acquire_lock(str(directory), what)
    try:
        yield
    finally:
        release_lock(descriptor)
