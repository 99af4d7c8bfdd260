"""A disk that fails below one directory: the system's calls as the disk door makes them, with a real disk's errno."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from barnabas.world import disk

FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
BY_DESCRIPTOR = ("pwrite", "pwritev", "write", "fsync", "fdatasync")
BY_PATH = ("replace", "makedirs", "utime", "unlink", "rmdir")
NEEDS_NO_ROOM = ("fsync", "fdatasync", "utime", "unlink", "rmdir", "replace")


@contextmanager
def failing(directory: Path, code: int) -> Iterator[None]:
    """Whoever writes there meets `code`: EROFS as on a file system that was made read-only because of its errors, EIO
    as on a broken one, ENOSPC as on a full one, where what needs no room still works."""
    with mock.patch.object(disk, "os", FailingCalls(directory, code)):
        yield


class FailingCalls:
    """The `os` module, but for what writes below the directory."""

    def __init__(self, directory: Path, code: int) -> None:
        self.directory = os.path.realpath(directory)
        self.code = code
        spared = NEEDS_NO_ROOM if code == errno.ENOSPC else ()
        for name in BY_DESCRIPTOR:
            if name not in spared and hasattr(os, name):
                setattr(self, name, self.checked(getattr(os, name), by_path=False))
        for name in BY_PATH:
            if name not in spared:
                setattr(self, name, self.checked(getattr(os, name), by_path=True))

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def checked(self, call: Any, *, by_path: bool) -> Any:
        def checking(first: Any, *rest: Any, **options: Any) -> Any:
            self.refuse(first if by_path else Path(f"/proc/self/fd/{first}").readlink())
            return call(first, *rest, **options)

        return checking

    def open(self, path: str, flags: int, *rest: Any) -> int:
        if flags & FOR_WRITING and not (self.code == errno.ENOSPC and Path(path).exists()):
            self.refuse(path)
        return os.open(path, flags, *rest)

    def refuse(self, path: str | Path) -> None:
        if os.path.realpath(path).startswith(self.directory + os.sep):
            raise OSError(self.code, os.strerror(self.code), str(path))
