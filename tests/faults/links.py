"""The wires between the brokers of a LocalCluster, each with a proxy in it that can be cut or slowed down.

    broker 1 ─ connect ─► proxy of 1→2 ─► broker 2          requests one way, answers the other

A cut wire is silent: connections stay, and what is on its way arrives when the wire is whole again, as with a network
that comes back before anybody has given up. Clients and the registry go their own ways, past all wires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from barnabas.cluster import in_process
from barnabas.cluster.in_process import ClusterBroker
from barnabas.cluster.real_world import real_world
from barnabas.config import BrokerConfig
from barnabas.world.loop_thread import LoopThread
from barnabas.world.network import SocketNetwork, SocketStream
from barnabas.world.ports import Receiver, Registry, World

READ_BYTES = 64 * 1024


class Way(Enum):
    REQUESTS = "requests"
    ANSWERS = "answers"


class Wire:
    """Where one broker reaches another."""

    def __init__(self, links: Links, target: tuple[str, int], cut: set[Way]) -> None:
        self.links = links
        self.target = target
        self.is_whole = {way: asyncio.Event() for way in Way}
        self.talking: set[asyncio.Task[None]] = set()
        self.server: asyncio.Server | None = None
        self.cut(cut)

    def cut(self, ways: set[Way]) -> None:
        """These, and no others."""
        for way, event in self.is_whole.items():
            (event.clear if way in ways else event.set)()

    async def open(self) -> int:
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.talking.add(task)
        try:
            there, back = await asyncio.open_connection(*self.target)
        except OSError:
            writer.close()
            return
        pumps = [
            asyncio.ensure_future(self.pump(Way.REQUESTS, reader, back)),
            asyncio.ensure_future(self.pump(Way.ANSWERS, there, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            writer.close()
            back.close()
            self.talking.discard(task)

    async def pump(
        self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(READ_BYTES):
                await asyncio.sleep(self.links.delay_s)
                await self.is_whole[way].wait()
                writer.write(data)
                await writer.drain()

    def hang_up(self) -> None:
        """All connections end, and what was on its way is lost."""
        for task in self.talking:
            task.cancel()

    def end(self) -> None:
        if self.server is not None:
            self.server.close()
        self.hang_up()


class Links:
    """All wires of one cluster. `with` it around the cluster."""

    def __init__(self) -> None:
        self.thread = LoopThread("links")
        self.wires: dict[tuple[int, int], Wire] = {}
        """By the broker that connects and the port of the other one."""
        self.ports: dict[tuple[int, int], asyncio.Task[int]] = {}
        self.cuts: dict[tuple[int, int], set[Way]] = {}
        """Of wires that are there, and of those still to come."""
        self.delay_s = 0.0

    def __enter__(self) -> Self:
        vars(in_process)["real_world"] = self.wired_world
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        vars(in_process)["real_world"] = real_world
        self.thread.call(self.end)
        self.thread.end()

    def end(self) -> None:
        for wire in self.wires.values():
            wire.end()

    def wired_world(
        self,
        registry: Registry,
        config: BrokerConfig,
        *,
        brokers: int = 1,
        ends_process: bool = False,
    ) -> World:
        world = real_world(registry, config, brokers=brokers, ends_process=ends_process)
        return replace(world, network=WiredNetwork(self, config.broker_id))

    async def port_of(self, source: int, host: str, port: int) -> int:
        key = (source, port)
        if key not in self.ports:
            self.wires[key] = wire = Wire(self, (host, port), self.cuts.get(key, set()))
            self.ports[key] = asyncio.ensure_future(wire.open())
        return await self.ports[key]

    # ---- for a test

    def cut(self, source: ClusterBroker, target: ClusterBroker, *ways: Way) -> None:
        """What `source` says to `target`, what it hears from it, or both; not what they say the other way round."""
        self.change({(source.id, target.endpoint.port): set(ways or Way)})

    def part(self, one: ClusterBroker, *others: ClusterBroker) -> None:
        """Nothing passes between one and each of the others."""
        for other in others:
            self.cut(one, other)
            self.cut(other, one)

    def hang_up(self, source: int, port: int) -> None:
        self.thread.call(self.wires[source, port].hang_up)

    def mend(self) -> None:
        """All of them, and as fast as they were."""
        self.delay_s = 0.0
        self.change({key: set() for key in self.cuts})

    def change(self, cuts: dict[tuple[int, int], set[Way]]) -> None:
        def change() -> None:
            self.cuts.update(cuts)
            for key, ways in cuts.items():
                if key in self.wires:
                    self.wires[key].cut(ways)

        self.thread.call(change)


class WiredNetwork(SocketNetwork):
    """Connects to others by the wires of its broker."""

    def __init__(self, links: Links, source: int) -> None:
        super().__init__(-1, -1)
        self.links = links
        self.source = source

    async def connect(
        self, host: str, port: int, accept: Callable[[SocketStream], Receiver]
    ) -> SocketStream:
        opening = self.links.thread.submit(self.links.port_of(self.source, host, port))
        return await super().connect(host, await asyncio.wrap_future(opening), accept)
