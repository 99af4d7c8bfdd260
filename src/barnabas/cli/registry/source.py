"""Sources of the registry commands: the files of an embedded registry, or a ZooKeeper.

The files can be read whether or not a broker runs, and contain the last CHANGES_KEPT changes (world/registry/store.py).
A ZooKeeper reports changes by watches that fire only once: if a node changes twice within a round trip, only one change
is reported.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.errors import ConfigError, NoNode

if TYPE_CHECKING:
    from barnabas.world.ports import RegistrySession, WatchEvent, ZnodeStat
    from barnabas.world.registry.reader import Reader
    from barnabas.world.registry.tree import Tree

DEFAULT_DATA_DIRECTORY = "./barnabas-data"  # of `barnabas up`
REGISTRY_DIRECTORY = "registry"  # below the data directory
POLL_S = 0.05
SESSION_TIMEOUT_MS = 10_000
CONNECTION_TIMEOUT_MS = 10_000


class ZnodeChange(NamedTuple):
    """Change of a node. `kind` is created, changed or deleted. `zxid` is None for deletions in a ZooKeeper."""

    zxid: int | None
    time_ms: int
    kind: str
    path: str


class RegistrySource(Protocol):
    def get(self, path: str) -> tuple[bytes, ZnodeStat]: ...

    def children(self, path: str) -> list[str]: ...

    def follow(self, path: str) -> Iterator[ZnodeChange | None]:
        """Yield None when following has started, then the changes at or beneath `path`."""
        ...


@contextmanager
def open_source(
    data: str, zookeeper: str | None, zookeeper_config: str | None = None
) -> Iterator[RegistrySource]:
    """Open the registry in the data directory or in a ZooKeeper.

    `zookeeper_config` is the path of a file with the security settings of the connection to ZooKeeper.
    """
    if zookeeper is None:
        with closing(open_reader(data)) as reader:
            yield FilesSource(reader)
        return
    with (
        asyncio.Runner() as runner,
        closing(ZooKeeperSource(zookeeper, runner, config=zookeeper_config)) as source,
    ):
        yield source


def open_reader(data: str) -> Reader:
    # Imported here because `--help` and completion do not need SQLite.
    from barnabas.world.registry.reader import Reader

    directory = Path(data, REGISTRY_DIRECTORY)
    if not directory.is_dir():
        connect = zookeeper_connect(Path(data))
        if connect is not None:
            why = f"the registry of {data} is in a ZooKeeper: add --zookeeper {connect}"
            raise ConfigError("--data", why)
        raise ConfigError(
            "--data",
            f"there is no registry in {data}: name the data directory of `barnabas up` with --data DIR, "
            "or a ZooKeeper with --zookeeper HOST:PORT",
        )
    return Reader(str(directory))


def zookeeper_connect(data: Path) -> str | None:
    """Return zookeeper.connect of the brokers of this data directory, or None if they used no ZooKeeper."""
    from barnabas.config.properties import parse_properties

    for path in broker_files(data):
        try:
            properties = parse_properties(path.read_text(encoding="ascii"), str(path))
        except (OSError, ValueError, ConfigError):
            continue  # a broker that starts with this file reports the error
        if connect := properties.get("zookeeper.connect"):
            return connect
    return None


def broker_files(data: Path) -> list[Path]:
    """Return the settings files of the brokers of this data directory. Only a cluster with a ZooKeeper has them."""
    return sorted(data.glob("broker-*.properties"))


class FilesSource:
    """Files of an embedded registry. `get` and `children` read a snapshot from the time of opening."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.tree: Tree = reader.tree()

    def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        node = self.tree.node(path)
        return node.data, node.stat()

    def children(self, path: str) -> list[str]:
        return self.tree.children(path)

    def follow(self, path: str) -> Iterator[ZnodeChange | None]:
        self.tree.node(path)  # raises if there is no such node
        last = self.reader.last_change()
        version = self.reader.data_version()
        yield None
        while True:
            for change in self.reader.changes_after(last):
                last = change.number
                if path in ("/", change.path) or change.path.startswith(path + "/"):
                    yield ZnodeChange(change.zxid, change.time_ms, change.kind, change.path)
            while (now := self.reader.data_version()) == version:
                time.sleep(POLL_S)
            version = now


class ZooKeeperSource:
    """Session with a ZooKeeper. The event loop runs only during calls."""

    def __init__(
        self,
        connect_string: str,
        runner: asyncio.Runner,
        *,
        config: str | None = None,
        connection_timeout_ms: int = CONNECTION_TIMEOUT_MS,
    ) -> None:
        # Imported here because only this source needs Kazoo.
        from barnabas.cli.registry.zookeeper_config import command_security
        from barnabas.world.registry.zookeeper import ZooKeeperRegistry

        self.runner = runner
        self.registry = ZooKeeperRegistry(
            connect_string,
            connection_timeout_ms=connection_timeout_ms,
            create_chroot=False,
            security=command_security(config),
        )
        self.session = self.runner.run(self.registry.connect(SESSION_TIMEOUT_MS))

    def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        return self.runner.run(self.session.get(path))

    def children(self, path: str) -> list[str]:
        return self.runner.run(self.session.children(path))

    def follow(self, path: str) -> Iterator[ZnodeChange | None]:
        watch = TreeWatch(self.session)
        self.runner.run(watch.begin(path))
        yield None
        while True:
            yield from self.runner.run(watch.changes())

    def close(self) -> None:
        self.runner.run(self.registry.close())


class TreeWatch:
    """Watches on all nodes at and beneath a path. After an event, the versions of its node show what changed."""

    def __init__(self, session: RegistrySession) -> None:
        self.session = session
        self.versions: dict[str, tuple[int, int]] = {}  # czxid and mzxid of each node
        self.events: list[WatchEvent] = []
        self.has_events = asyncio.Event()

    async def begin(self, path: str) -> None:
        await self.session.get(path)
        await self.compare(path)

    async def changes(self) -> list[ZnodeChange]:
        """Wait for changes. Returns at least one, in the order of the events."""
        found: list[ZnodeChange] = []
        while not found:
            await self.has_events.wait()
            self.has_events.clear()
            events, self.events = self.events, []
            for event in events:
                found += await self.compare(event.path)
        return found

    def on_event(self, event: WatchEvent) -> None:
        self.events.append(event)
        self.has_events.set()

    async def compare(self, path: str) -> list[ZnodeChange]:
        """Return the changes of a node since its last version, and of new children. Sets the watches again."""
        stat = await self.session.exists(path, self.on_event)
        if stat is None:
            return self.forget(path)
        found = []
        before = self.versions.get(path)
        self.versions[path] = (stat.czxid, stat.mzxid)
        if before is None:
            found.append(ZnodeChange(stat.czxid, stat.ctime_ms, "created", path))
        elif before != (stat.czxid, stat.mzxid):
            found.append(ZnodeChange(stat.mzxid, stat.mtime_ms, "changed", path))
        try:
            names = await self.session.children(path, self.on_event)
        except NoNode:
            return found + self.forget(path)
        for name in names:
            child = f"{path.rstrip('/')}/{name}"
            if child not in self.versions:
                found += await self.compare(child)
        return found

    def forget(self, path: str) -> list[ZnodeChange]:
        if self.versions.pop(path, None) is None:
            return []
        return [ZnodeChange(None, time.time_ns() // 1_000_000, "deleted", path)]
