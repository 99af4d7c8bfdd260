"""A disk that fails below one directory: replaces the system calls of the disk layer with ones that raise an errno."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
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
def failing(directory: Path, code: int, *others: Path) -> Iterator[None]:
    """Make writes below these directories fail with `code`: EROFS for a disk that turned read-only, EIO for a failed
    disk, ENOSPC for a full one. On a full disk, calls that need no space still work."""
    with mock.patch.object(disk, "os", FailingCalls((directory, *others), code)):
        yield


class FailingCalls:
    """The `os` module with failing writes below the directories."""

    def __init__(self, directories: Sequence[Path], code: int) -> None:
        self.prefixes = tuple(os.path.realpath(each) + os.sep for each in directories)
        self.code = code
        spared = NEEDS_NO_ROOM if code == errno.ENOSPC else ()
        for name in BY_DESCRIPTOR:
            if name not in spared and hasattr(os, name):
                setattr(self, name, self.with_check(getattr(os, name), by_path=False))
        for name in BY_PATH:
            if name not in spared:
                setattr(self, name, self.with_check(getattr(os, name), by_path=True))

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def with_check(self, call: Any, *, by_path: bool) -> Any:
        def checked_call(first: Any, *rest: Any, **options: Any) -> Any:
            self.refuse(first if by_path else Path(f"/proc/self/fd/{first}").readlink())
            return call(first, *rest, **options)

        return checked_call

    def open(self, path: str, flags: int, *rest: Any) -> int:
        if flags & FOR_WRITING and not (self.code == errno.ENOSPC and Path(path).exists()):
            self.refuse(path)
        return os.open(path, flags, *rest)

    def refuse(self, path: str | Path) -> None:
        if os.path.realpath(path).startswith(self.prefixes):
            raise OSError(self.code, os.strerror(self.code), str(path))
