"""Proxies between the brokers of a LocalCluster. Each wire can be cut or slowed down.

    broker 1 ─ connect ─► proxy of 1→2 ─► broker 2          requests one way, responses the other

A cut wire is silent: connections stay open, and bytes in flight arrive when the wire is healed. It is like a network
failure that ends before any timeout. Clients and the registry do not use the wires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from ssl import SSLContext
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from barnabas.cluster import in_process
from barnabas.cluster.in_process import ClusterBroker
from barnabas.cluster.real_world import real_world
from barnabas.config import BrokerConfig
from barnabas.world.loop_thread import LoopThread
from barnabas.world.network import SocketNetwork
from barnabas.world.ports import Receiver, Registry, World
from barnabas.world.socket_stream import SocketStream

READ_BYTES = 64 * 1024


class Direction(Enum):
    REQUESTS = "requests"
    RESPONSES = "responses"


class Wire:
    """The connection path from one broker to another."""

    def __init__(self, links: Links, target: tuple[str, int], cut: set[Direction]) -> None:
        self.links = links
        self.target = target
        self.is_healed = {direction: asyncio.Event() for direction in Direction}
        self.talking: set[asyncio.Task[None]] = set()
        self.server: asyncio.Server | None = None
        self.cut(cut)

    def cut(self, directions: set[Direction]) -> None:
        """Cut exactly these directions."""
        for direction, event in self.is_healed.items():
            (event.clear if direction in directions else event.set)()

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
            asyncio.ensure_future(self.pump(Direction.REQUESTS, reader, back)),
            asyncio.ensure_future(self.pump(Direction.RESPONSES, there, writer)),
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
        self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(READ_BYTES):
                await asyncio.sleep(self.links.delay_s)
                await self.is_healed[direction].wait()
                writer.write(data)
                await writer.drain()

    def hang_up(self) -> None:
        """Close all connections; bytes in flight are lost."""
        for task in self.talking:
            task.cancel()

    def end(self) -> None:
        if self.server is not None:
            self.server.close()
        self.hang_up()


class Links:
    """All wires of one cluster. Enter its context before the cluster's."""

    def __init__(self) -> None:
        self.thread = LoopThread("links")
        self.wires: dict[tuple[int, int], Wire] = {}
        """Wires by the connecting broker and the port of the other broker."""
        self.ports: dict[tuple[int, int], asyncio.Task[int]] = {}
        self.cuts: dict[tuple[int, int], set[Direction]] = {}
        """Cut directions, of existing wires and of wires still to be opened."""
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

    # ---- test interface

    def cut(self, source: ClusterBroker, target: ClusterBroker, *directions: Direction) -> None:
        """Cut the requests of `source` to `target`, the responses, or both. Requests of `target` still pass."""
        self.change({(source.id, target.endpoint.port): set(directions or Direction)})

    def isolate(self, one: ClusterBroker, *others: ClusterBroker) -> None:
        """Cut all wires between one broker and each of the others."""
        for other in others:
            self.cut(one, other)
            self.cut(other, one)

    def hang_up(self, source: int, port: int) -> None:
        self.thread.call(self.wires[source, port].hang_up)

    def heal(self) -> None:
        """Heal all wires and remove delays."""
        self.delay_s = 0.0
        self.change({key: set() for key in self.cuts})

    def change(self, cuts: dict[tuple[int, int], set[Direction]]) -> None:
        def change() -> None:
            self.cuts.update(cuts)
            for key, directions in cuts.items():
                if key in self.wires:
                    self.wires[key].cut(directions)

        self.thread.call(change)


class WiredNetwork(SocketNetwork):
    """Connects to other brokers through the wires of its broker."""

    def __init__(self, links: Links, source: int) -> None:
        super().__init__(-1, -1)
        self.links = links
        self.source = source

    async def connect(
        self,
        host: str,
        port: int,
        accept: Callable[[SocketStream], Receiver],
        tls: SSLContext | None = None,
    ) -> SocketStream:
        opening = self.links.thread.submit(self.links.port_of(self.source, host, port))
        return await super().connect(host, await asyncio.wrap_future(opening), accept, tls)
