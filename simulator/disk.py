"""An in-memory disk that loses data that was not fsynced.

Each directory has two sets of names: those that the broker sees, and those that survive a power failure. Each file has
two versions of its bytes in the same way. fsync of a file makes its bytes durable, fsync of a directory its names. So a
created, renamed or removed file is not durable until its directory is synced.

`crash()` returns the disk after a power failure. Without a Random, all unsynced data is lost. With one, each unsynced
name and a random prefix of each file's unsynced bytes may survive: torn writes, and removed files that reappear. The
order of changes is not kept, which is harsher than any real file system. There is one exception: the renames within one
directory that survive are the first ones. A journal guarantees that, and the log cleaner (like Kafka's) depends on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from barnabas.errors import DirectoryLocked, OutOfSpace, StorageError
from barnabas.world.ports import Buffer, DirectoryLock, File


class Node:
    """The content of a file: `data` as the broker sees it, `durable` as it survives a power failure."""

    __slots__ = ("data", "durable", "modified_ms", "unsynced_from")

    def __init__(self, data: bytes = b"", modified_ms: int = 0) -> None:
        self.data = bytearray(data)
        self.durable = b""
        self.modified_ms = modified_ms
        self.unsynced_from = 0
        """Position before which `data` and `durable` are equal."""

    def sync(self) -> None:
        rest = bytes(memoryview(self.data)[self.unsynced_from :])
        if rest or self.unsynced_from != len(self.durable):
            self.durable = self.durable[: self.unsynced_from] + rest
        self.unsynced_from = len(self.data)

    def after_crash(self, random: Random | None) -> Node:
        data = self.durable
        if random is not None and random.random() < 0.7:
            kept = random.randint(self.unsynced_from, len(self.data))
            data = bytes(memoryview(self.data)[:kept])
            if random.random() < 0.2 and kept < len(self.data):
                data += bytes(random.randint(1, min(64, len(self.data) - kept)))  # never written
        node = Node(data, self.modified_ms)
        node.sync()
        return node


class Directory:
    """A directory: `names` as the broker sees them, `durable` as they survive a power failure."""

    __slots__ = ("durable", "names", "renames")

    def __init__(self) -> None:
        self.names: dict[str, Node | Directory] = {}
        self.durable: dict[str, Node | Directory] = {}
        self.renames: list[tuple[str, str]] = []
        """Pairs (old name, new name) since the last sync."""

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.renames.clear()

    def after_crash(self, random: Random | None) -> Directory:
        after = Directory()
        count = random.randint(0, len(self.renames)) if random is not None else 0
        renamed = dict(self.durable)
        for source, target in self.renames[:count]:
            if source in renamed:
                renamed[target] = renamed.pop(source)
        touched = {name for pair in self.renames for name in pair}
        for name in sorted(self.names.keys() | self.durable.keys() | touched):
            survives = self.names if random is not None and random.random() < 0.5 else self.durable
            if name in touched:
                survives = renamed
            kept = survives.get(name)
            if kept is not None:
                after.names[name] = kept.after_crash(random)
        after.sync()
        return after


class ForgetfulFile:
    def __init__(self, disk: ForgetfulDisk, path: str, node: Node) -> None:
        self.disk = disk
        self.name = path
        self.node = node
        self.is_closed = False

    @property
    def path(self) -> str:
        return self.name

    def size(self) -> int:
        return len(self.node.data)

    def append(self, parts: Sequence[Buffer]) -> None:
        self.check()
        self.disk.before_write(self.name, sum(map(len, parts)))
        for part in parts:
            self.node.data += part
        self.node.modified_ms = self.disk.now_ms()

    def read(self, position: int, size: int) -> bytes:
        self.check()
        return bytes(memoryview(self.node.data)[position : position + size])

    def truncate(self, size: int) -> None:
        self.check()
        del self.node.data[size:]
        self.node.data += bytes(size - len(self.node.data))
        self.node.unsynced_from = min(self.node.unsynced_from, size)
        self.node.modified_ms = self.disk.now_ms()

    def rename(self, path: str) -> None:
        self.disk.rename(self.name, path)
        self.name = path

    def moved(self, path: str) -> None:
        self.name = path

    def fileno(self) -> int:
        raise StorageError(self.name, "a simulated file has no descriptor")

    def close(self) -> None:
        self.is_closed = True

    def check(self) -> None:
        self.disk.check(self.name)
        if self.is_closed:
            raise StorageError(self.name, "the file was closed")


class ForgetfulLock:
    def __init__(self, disk: ForgetfulDisk, path: str) -> None:
        self.disk = disk
        self.path = path

    def release(self) -> None:
        self.disk.locks.discard(self.path)


class ForgetfulDisk:
    """In-memory implementation of `Disk` with `capacity_bytes` of space. Each `sync` takes `sync_seconds`."""

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
        """Operations on paths with this prefix fail."""
        self.root = Directory()
        self.locks: set[str] = set()
        self.replacements: dict[str, int] = {}
        """By path: a number that grows with each replacement, so that a prepared one can see that it is outdated."""
        self.syncs = 0

    def crash(self, random: Random | None = None) -> ForgetfulDisk:
        after = ForgetfulDisk(
            now_ms=self.now_ms, capacity_bytes=self.capacity_bytes, sync_seconds=self.sync_seconds
        )
        after.root = self.root.after_crash(random)
        return after

    # ---- disk interface ---------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> File:
        self.check(path)
        node = self.find(path)
        if node is None and create:
            self.before_write(path, 0)
            directory, name = self.parent_of(path)
            node = directory.names[name] = Node(b"", self.now_ms())
        if not isinstance(node, Node):
            raise StorageError(path, "no such file")
        return ForgetfulFile(self, path, node)

    def exists(self, path: str) -> bool:
        return self.find(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self.find(path), Directory)

    def list(self, path: str) -> list[str]:
        return sorted(self.directory(path).names)

    def size(self, path: str) -> int:
        return len(self.file(path).data)

    def modified_ms(self, path: str) -> int:
        return self.file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.file(path).modified_ms = modified_ms

    def for_thread(self) -> ForgetfulDisk:
        return self

    def read_bytes(self, path: str) -> bytes:
        return bytes(self.file(path).data)

    def replace_bytes(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self.before_write(path, len(data))
        if path in self.replacements:
            self.replacements[path] += 1
        directory, name = self.parent_of(path)
        node = directory.names[name] = Node(data, self.now_ms())
        if sync:
            node.sync()
            directory.sync()

    def prepare_replace(self, path: str) -> Callable[[bytes], None]:
        number = self.replacements[path] = self.replacements.get(path, 0) + 1

        def replace(data: bytes) -> None:
            if self.replacements[path] == number:
                self.replace_bytes(path, data, sync=False)

        return replace

    def make_directory(self, path: str) -> None:
        self.check(path)
        directory = self.root
        for name in names_in(path):
            child = directory.names.setdefault(name, Directory())
            if not isinstance(child, Directory):
                raise StorageError(path, "a file has this name")
            directory = child

    def rename(self, source: str, target: str) -> None:
        self.check(source)
        directory, name = self.parent_of(source)
        if name not in directory.names:
            raise StorageError(source, "no such file or directory")
        new_directory, new_name = self.parent_of(target)
        new_directory.names[new_name] = directory.names.pop(name)
        if new_directory is directory:
            directory.renames.append((name, new_name))

    def remove(self, path: str) -> None:
        self.check(path)
        if self.exists(path):
            directory, name = self.parent_of(path)
            del directory.names[name]

    def remove_tree(self, path: str) -> None:
        self.remove(path)

    def lock(self, path: str) -> DirectoryLock:
        if path in self.locks:
            raise DirectoryLocked(path, "another broker is using this directory: stop it first")
        self.open(path, create=True)
        self.locks.add(path)
        return ForgetfulLock(self, path)

    def space(self, path: str) -> tuple[int, int]:
        self.check(path)
        total = self.capacity_bytes if self.capacity_bytes is not None else 1 << 40
        return total, max(0, total - self.used_bytes())

    def sync_now(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        self.syncs += 1
        for file in files:
            assert isinstance(file, ForgetfulFile)
            file.check()
            file.node.sync()
        for path in directories:
            self.directory(path).sync()

    async def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        await asyncio.sleep(self.sync_seconds)
        self.sync_now(files, directories)

    # ---- implementation -----------------------------------------------------------------------------------------

    def find(self, path: str) -> Node | Directory | None:
        node: Node | Directory | None = self.root
        for name in names_in(path):
            node = node.names.get(name) if isinstance(node, Directory) else None
        return node

    def file(self, path: str) -> Node:
        self.check(path)
        node = self.find(path)
        if not isinstance(node, Node):
            raise StorageError(path, "no such file")
        return node

    def directory(self, path: str) -> Directory:
        self.check(path)
        node = self.find(path)
        if not isinstance(node, Directory):
            raise StorageError(path, "no such directory")
        return node

    def parent_of(self, path: str) -> tuple[Directory, str]:
        directory, _, name = path.rpartition("/")
        return self.directory(directory), name

    def check(self, path: str) -> None:
        if self.fails is not None and path.startswith(self.fails):
            raise StorageError(path, "the disk is broken")

    def before_write(self, path: str, size: int) -> None:
        self.check(path)
        if self.capacity_bytes is not None and self.used_bytes() + size > self.capacity_bytes:
            raise OutOfSpace(path, "no space left on the volume")

    def used_bytes(self) -> int:
        used = 0
        waiting: list[Directory] = [self.root]
        while waiting:
            for node in waiting.pop().names.values():
                if isinstance(node, Directory):
                    waiting.append(node)
                else:
                    used += len(node.data)
        return used


def names_in(path: str) -> list[str]:
    return [name for name in path.split("/") if name]
