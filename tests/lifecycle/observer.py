"""Watches the registry through a separate session, and passes every node it reads to the invariants."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from barnabas.errors import NoNode
from barnabas.metadata import znodes
from barnabas.model import BrokerId, LeaderAndIsr, TopicPartition
from barnabas.world.loop_thread import LoopThread
from barnabas.world.ports import Registry, RegistrySession, WatchEvent, ZnodeStat
from tests.lifecycle.invariants import MARKER, STATE, Invariants

T = TypeVar("T")

ROOTS = (
    znodes.CONTROLLER,
    znodes.CONTROLLER_EPOCH,
    znodes.BROKER_IDS,
    znodes.TOPICS,
    znodes.DELETE_TOPICS,
)
SESSION_TIMEOUT_MS = 30_000


class Node(NamedTuple):
    data: bytes
    stat: ZnodeStat


class Observer:
    """Registry observer. Feeds `invariants` from `begin()` to `end()`. Methods can be called from any thread."""

    def __init__(self, registry: Registry, invariants: Invariants) -> None:
        self.registry = registry
        self.invariants = invariants
        self.nodes: dict[str, Node] = {}
        self.events: asyncio.Queue[str] = asyncio.Queue()
        self.thread = LoopThread("observer")
        self.looking: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self.thread.run(self.connect())

    async def connect(self) -> None:
        self.session: RegistrySession = await self.registry.connect(SESSION_TIMEOUT_MS)
        for root in ROOTS:
            await self.read(root)
        self.looking = asyncio.create_task(self.watch_all())

    def end(self) -> None:
        try:
            self.thread.run(self.leave())
        finally:
            self.thread.end()

    async def leave(self) -> None:
        if self.looking is not None:
            self.looking.cancel()
        await self.session.close()

    # ---- watching

    async def watch_all(self) -> None:
        while True:
            path = await self.events.get()
            await self.read(path)

    def on_event(self, event: WatchEvent) -> None:
        self.events.put_nowait(event.path)

    async def read(self, path: str) -> None:
        """Read a node and its new children, with a watch on each."""
        if await self.session.exists(path, self.on_event) is None:
            await self.forget(path)
            return
        if state := STATE.fullmatch(path):
            # The name may belong to a new topic by now, and the state must be checked against it.
            await self.reread(znodes.topic_path(state[1]))
        try:
            data, stat = await self.session.get(path)
            names = await self.session.children(path, self.on_event)
        except NoNode:
            await self.forget(path)
            return
        self.nodes[path] = Node(data, stat)
        await self.check(path, data, stat)
        for name in names:
            child = f"{path}/{name}"
            if child not in self.nodes:
                await self.read(child)

    async def reread(self, path: str) -> None:
        with suppress(NoNode):
            data, stat = await self.session.get(path)
            await self.check(path, data, stat)

    async def check(self, path: str, data: bytes, stat: ZnodeStat) -> None:
        """Check a node. If a topic has shrunk, check the marker that explains it first."""
        if self.invariants.is_shrunk(path, data):
            marker = znodes.delete_topic_path(path.rpartition("/")[2])
            try:
                self.invariants.see(marker, *await self.session.get(marker), time.monotonic_ns())
            except NoNode:
                if await self.session.exists(path) is None:
                    return  # the deletion has finished meanwhile
        self.invariants.see(path, data, stat, time.monotonic_ns())

    async def forget(self, path: str) -> None:
        known = self.nodes.pop(path, None)
        if known is not None and (marker := MARKER.fullmatch(path)):
            topic = marker[1]
            left = {}
            for each in (znodes.topic_path(topic), znodes.topic_config_path(topic)):
                stat = await self.session.exists(each)
                if stat is not None:
                    left[each] = stat
            self.invariants.see_unmarked(topic, left)

    def has_node(self, path: str) -> bool:
        """Whether the node exists, as far as the watches have reported. Does not read the registry."""
        return path in self.nodes

    # ---- the current registry, for tests

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.thread.run(work)

    def get(self, path: str) -> bytes | None:
        async def get() -> bytes | None:
            try:
                data, _ = await self.session.get(path)
                return data
            except NoNode:
                return None

        return self.run(get())

    def stat(self, path: str) -> ZnodeStat:
        found = self.run(self.session.exists(path))
        assert found is not None, path
        return found

    def controller(self) -> BrokerId | None:
        data = self.get(znodes.CONTROLLER)
        return None if data is None else znodes.decode_controller(data)

    def controller_epoch(self) -> int:
        return znodes.decode_controller_epoch(self.get(znodes.CONTROLLER_EPOCH) or b"0")

    def broker_epochs(self) -> dict[BrokerId, int]:
        async def read() -> dict[BrokerId, int]:
            found = {}
            for name in await self.session.children(znodes.BROKER_IDS):
                stat = await self.session.exists(f"{znodes.BROKER_IDS}/{name}")
                if stat is not None and name.isdecimal():
                    found[BrokerId(int(name))] = stat.czxid
            return found

        return self.run(read())

    def states(self, topic: str, partitions: int) -> dict[int, LeaderAndIsr]:
        """The existing partition states."""

        async def read() -> dict[int, LeaderAndIsr]:
            found = {}
            for index in range(partitions):
                partition = TopicPartition(topic, index)
                try:
                    data, stat = await self.session.get(znodes.state_path(partition))
                except NoNode:
                    continue
                found[index] = znodes.decode_state(partition, data, version=stat.version)
            return found

        return self.run(read())
