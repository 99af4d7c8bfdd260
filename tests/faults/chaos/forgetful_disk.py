"""A real disk that loses unsynced data: the counterpart of simulator/disk.py for a broker in its own process.

Files are real, so the broker serves them as usual. A store next to the log directory holds the state that survives a
power failure: for each file the bytes of its last fsync, for each directory the names of its last fsync. After the
process was killed, `lose_power` rebuilds the log directory from the store.

    <log dir>.durable/4711          the bytes of inode 4711 as of its last fsync
                      4711.names    the names in directory 4711 as of its last fsync, with their inodes
                      4711.held     a second link to the file, so that its inode number is not reused

Everything found at startup counts as durable. Renames are not kept in order, which is harsher than a journal.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from barnabas.world.disk import RealDisk
from barnabas.world.ports import File


def store_of(log_dir: Path) -> Path:
    return log_dir.with_name(log_dir.name + ".durable")


class ForgetfulDisk(RealDisk):
    """The disk of one log directory."""

    def __init__(self, log_dir: Path, *, is_aside: bool = False) -> None:
        super().__init__()
        self.log_dir = log_dir
        self.store = store_of(log_dir)
        self.writing = threading.Lock()
        if not is_aside:
            log_dir.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(self.store, ignore_errors=True)
            self.store.mkdir()
            self.keep_all(log_dir)

    def for_thread(self) -> ForgetfulDisk:
        return ForgetfulDisk(self.log_dir, is_aside=True)

    # ---- calls that make bytes or names durable; a real fsync would only cost time

    def sync_now(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        for file in files:
            self.keep_file(file.path, file.fileno())
        for directory in directories:
            self.keep_names(Path(directory))

    async def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        self.sync_now(files, directories)

    def replace_bytes(self, path: str, data: bytes, *, sync: bool = True) -> None:
        super().replace_bytes(path, data, sync=False)
        if sync:
            self.keep_path(Path(path))
            self.keep_names(Path(path).parent)

    # ---- the store

    def keep_all(self, directory: Path) -> None:
        for each in directory.iterdir():
            if each.is_dir():
                self.keep_all(each)
            else:
                self.keep_path(each)
        self.keep_names(directory)

    def keep_path(self, path: Path) -> None:
        with path.open("rb") as file:
            self.keep_file(str(path), file.fileno())

    def keep_file(self, path: str, descriptor: int) -> None:
        stat = os.fstat(descriptor)
        self.put(f"{stat.st_ino}", os.pread(descriptor, stat.st_size, 0))
        # If the file is already deleted, its name is not kept either.
        with suppress(FileExistsError, FileNotFoundError):
            os.link(path, self.store / f"{stat.st_ino}.held")

    def keep_names(self, directory: Path) -> None:
        if directory != self.log_dir and self.log_dir not in directory.parents:
            return
        found: dict[str, tuple[int, bool]] = {}
        for each in directory.iterdir():
            with suppress(FileNotFoundError):
                found[each.name] = (each.stat().st_ino, each.is_dir())
        self.put(f"{directory.stat().st_ino}.names", json.dumps(found).encode())

    def put(self, name: str, data: bytes) -> None:
        """Write atomically: the process may be killed at any moment."""
        with self.writing:
            new = self.store / "new"
            new.write_bytes(data)
            new.replace(self.store / name)


def lose_power(log_dir: Path, choose: Random) -> int:
    """Rebuild the state that the next start finds: all durable data, and a random part of what was appended since.

    Returns the number of log bytes lost. No process may use the directory.
    """
    found = log_dir.with_name(log_dir.name + ".found")
    restore(found, store_of(log_dir), log_dir.stat().st_ino, choose)
    lost = bytes_of_logs(log_dir) - bytes_of_logs(found)
    shutil.rmtree(log_dir)
    found.rename(log_dir)
    return lost


def bytes_of_logs(log_dir: Path) -> int:
    return sum(path.stat().st_size for path in log_dir.glob("*/*.log"))


def restore(directory: Path, store: Path, inode: int, choose: Random) -> None:
    directory.mkdir()
    names = store / f"{inode}.names"
    known = json.loads(names.read_bytes()) if names.exists() else {}
    for name, (number, is_directory) in sorted(known.items()):
        if is_directory:
            restore(directory / name, store, number, choose)
            continue
        kept, held = store / f"{number}", store / f"{number}.held"
        durable = kept.read_bytes() if kept.exists() else b""
        written = held.read_bytes() if held.exists() else durable
        (directory / name).write_bytes(tear(durable, written, choose))


def tear(durable: bytes, written: bytes, choose: Random) -> bytes:
    """The durable bytes, possibly some of the bytes appended to them, and possibly a hole at the end."""
    if not written.startswith(durable) or choose.random() < 0.5:
        return durable
    kept = choose.randint(len(durable), len(written))
    data = written[:kept]
    if choose.random() < 0.2 and kept < len(written):
        data += bytes(choose.randint(1, min(64, len(written) - kept)))
    return data
