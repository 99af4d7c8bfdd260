"""A disk in memory that forgets what was not fsynced.

What the running broker sees is `entries` (name → node) and each node's `data`; what would survive a power cut is
`durable_entries` and each node's `durable`. fsync of a file moves its data over, fsync of a directory the names in it:
a created, renamed or removed file is not safe before its directory was synced, as on a real file system.

`crash()` gives the disk as the next start finds it. Without a Random everything unsynced is gone; with one, each
unsynced name and a random beginning of each file's unsynced bytes may have made it: torn writes, resurrected files.
`capacity_bytes` makes it full, `fails` makes it break.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from barnabas.errors import DirectoryLocked, OutOfSpace, StorageError
from barnabas.world.ports import Buffer, DirectoryLock, File


class Node:
    """What stands behind a name."""

    __slots__ = ("data", "durable", "modified_ms", "unsynced_from")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.modified_ms = 0
        self.unsynced_from = 0
        """Everything before this position is the same in `data` and `durable`."""

    def sync(self) -> None:
        if self.unsynced_from < len(self.durable) or len(self.durable) != len(self.data):
            self.durable = self.durable[: self.unsynced_from] + bytes(
                memoryview(self.data)[self.unsynced_from :]
            )
        self.unsynced_from = len(self.data)

    def after_crash(self, random: Random | None) -> bytes:
        if random is None or random.random() < 0.3:
            return self.durable
        kept = random.randint(self.unsynced_from, len(self.data))
        torn = bytes(memoryview(self.data)[:kept])
        if random.random() < 0.2 and kept < len(self.data):
            torn += bytes(
                random.randint(1, min(64, len(self.data) - kept))
            )  # blocks not yet written
        return torn


class ForgetfulFile:
    def __init__(self, disk: ForgetfulDisk, path: str, node: Node) -> None:
        self.disk = disk
        self.name = path
        self.node = node

    @property
    def path(self) -> str:
        return self.name

    def size(self) -> int:
        return len(self.node.data)

    def append(self, parts: Sequence[Buffer]) -> None:
        self.disk.before_write(self.name, sum(map(len, parts)))
        for part in parts:
            self.node.data += part
        self.node.modified_ms = self.disk.now_ms()

    def read(self, position: int, size: int) -> bytes:
        self.disk.check(self.name)
        return bytes(memoryview(self.node.data)[position : position + size])

    def truncate(self, size: int) -> None:
        self.disk.check(self.name)
        del self.node.data[size:]
        self.node.data += bytes(size - len(self.node.data))
        self.node.unsynced_from = min(self.node.unsynced_from, size)
        self.node.modified_ms = self.disk.now_ms()

    def rename(self, path: str) -> None:
        self.disk.rename(self.name, path)
        self.name = path

    def fileno(self) -> int:
        raise StorageError(self.name, "a simulated file has no descriptor")

    def close(self) -> None:
        return


class ForgetfulLock:
    def __init__(self, disk: ForgetfulDisk, path: str) -> None:
        self.disk = disk
        self.path = path

    def release(self) -> None:
        self.disk.locks.discard(self.path)


class ForgetfulDisk:
    def __init__(
        self,
        *,
        now_ms: Callable[[], int] = lambda: 0,
        capacity_bytes: int | None = None,
        sync_seconds: float = 0.0,
    ) -> None:
        self.now_ms = now_ms
        self.capacity_bytes = capacity_bytes
        self.sync_seconds = sync_seconds
        self.fails: str | None = None
        """A path beginning with this is broken."""
        self.entries: dict[str, Node | None] = {}
        """None is a directory."""
        self.durable_entries: dict[str, Node | None] = {}
        self.locks: set[str] = set()
        self.syncs = 0

    def crash(self, random: Random | None = None) -> ForgetfulDisk:
        after = ForgetfulDisk(
            now_ms=self.now_ms, capacity_bytes=self.capacity_bytes, sync_seconds=self.sync_seconds
        )
        contents: dict[int, Node] = {}
        for path in sorted(self.entries.keys() | self.durable_entries.keys()):
            now, then = self.entries.get(path, MISSING), self.durable_entries.get(path, MISSING)
            kept = now if random is not None and random.random() < 0.5 else then
            if kept is MISSING or (parent(path) not in after.entries and parent(path) != ""):
                continue
            if isinstance(kept, Node):
                node = contents.get(id(kept))
                if node is None:
                    node = contents[id(kept)] = Node()
                    node.data += kept.after_crash(random)
                    node.modified_ms = kept.modified_ms
                    node.durable = bytes(node.data)
                    node.unsynced_from = len(node.data)
                after.entries[path] = after.durable_entries[path] = node
            else:
                after.entries[path] = after.durable_entries[path] = None
        return after

    # ---- the port ---------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> File:
        self.check(path)
        if path not in self.entries and create:
            self.before_write(path, 0)
            if self.entries.get(parent(path), MISSING) is not None:
                raise StorageError(path, "no such directory")
            node = self.entries[path] = Node()
            node.modified_ms = self.now_ms()
        return ForgetfulFile(self, path, self.node(path))

    def node(self, path: str) -> Node:
        self.check(path)
        node = self.entries.get(path)
        if node is None:
            raise StorageError(path, "no such file")
        return node

    def exists(self, path: str) -> bool:
        return path in self.entries

    def is_directory(self, path: str) -> bool:
        return self.entries.get(path, MISSING) is None

    def list(self, path: str) -> list[str]:
        self.check(path)
        if not self.is_directory(path):
            raise StorageError(path, "no such directory")
        return sorted(child.rpartition("/")[2] for child in self.entries if parent(child) == path)

    def size(self, path: str) -> int:
        return len(self.node(path).data)

    def modified_ms(self, path: str) -> int:
        return self.node(path).modified_ms

    def read_bytes(self, path: str) -> bytes:
        return bytes(self.node(path).data)

    def replace_bytes(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self.before_write(path, len(data))
        node = Node()
        node.data += data
        node.modified_ms = self.now_ms()
        self.entries[path] = node
        if sync:
            node.sync()
            self.sync_names(parent(path))

    def make_directory(self, path: str) -> None:
        self.check(path)
        while path and path not in self.entries:
            self.entries[path] = None
            path = parent(path)

    def rename(self, source: str, target: str) -> None:
        self.check(source)
        if source not in self.entries:
            raise StorageError(source, "no such file or directory")
        for path in [path for path in self.entries if path == source or is_under(path, source)]:
            self.entries[target + path[len(source) :]] = self.entries.pop(path)
        # A directory that is renamed takes its durable names along: they belong to it, not to the path.
        for path in [path for path in self.durable_entries if is_under(path, source)]:
            self.durable_entries[target + path[len(source) :]] = self.durable_entries[path]

    def remove(self, path: str) -> None:
        self.check(path)
        self.entries.pop(path, None)

    def remove_tree(self, path: str) -> None:
        self.check(path)
        for gone in [name for name in self.entries if name == path or is_under(name, path)]:
            del self.entries[gone]

    def lock(self, path: str) -> DirectoryLock:
        if path in self.locks:
            raise DirectoryLocked(path, "another broker is using this directory")
        if path not in self.entries:
            self.entries[path] = Node()
        self.locks.add(path)
        return ForgetfulLock(self, path)

    def space(self, path: str) -> tuple[int, int]:
        total = self.capacity_bytes if self.capacity_bytes is not None else 1 << 40
        return total, max(0, total - self.used_bytes())

    def sync_now(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        self.syncs += 1
        for file in files:
            self.check(file.path)
            assert isinstance(file, ForgetfulFile)
            file.node.sync()
        for directory in directories:
            self.sync_names(directory)

    async def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        await asyncio.sleep(self.sync_seconds)
        self.sync_now(files, directories)

    # ---- what makes it simulated --------------------------------------------------------------------------------

    def sync_names(self, directory: str) -> None:
        self.check(directory)
        directory = directory.rstrip("/")
        for path in [path for path in self.durable_entries if parent(path) == directory]:
            if path not in self.entries:
                del self.durable_entries[path]
        for path, node in self.entries.items():
            if parent(path) == directory:
                self.durable_entries[path] = node

    def check(self, path: str) -> None:
        if self.fails is not None and path.startswith(self.fails):
            raise StorageError(path, "the disk is broken")

    def before_write(self, path: str, size: int) -> None:
        self.check(path)
        if self.capacity_bytes is not None and self.used_bytes() + size > self.capacity_bytes:
            raise OutOfSpace(path, "no space left on the volume")

    def used_bytes(self) -> int:
        return sum(len(node.data) for node in self.entries.values() if node is not None)


MISSING = Node()
"""Stands for a name that is not there, where None already means a directory."""


def parent(path: str) -> str:
    return path.rpartition("/")[0]


def is_under(path: str, directory: str) -> bool:
    return path.startswith(directory + "/")
