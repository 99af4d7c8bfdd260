"""TCP proxies in front of processes. Their links can hold bytes, drop one direction, reset connections or be slow.

    broker 1 ─ connect ─► proxy of broker 2 ─► inter-broker listener of broker 2

All brokers connect to the same advertised address of broker 2. The source broker of a connection is found by its local
port among the sockets of the broker processes. So each ordered pair of brokers has its own link.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

import psutil

from barnabas.world.loop_thread import LoopThread

READ_BYTES = 64 * 1024
HOST = "127.0.0.1"


class Direction(Enum):
    REQUESTS = "requests"
    RESPONSES = "responses"


class Disturbance(NamedTuple):
    """The effect of a link on the bytes that pass it."""

    holds: bool = False
    """Bytes wait and pass when the link is healed, as TCP retransmits them."""
    swallows: Direction | None = None
    """Bytes of one direction are lost. Their connection is reset when the link is healed."""
    resets: bool = False
    """Connections are reset and new ones refused."""
    latency_s: float = 0.0
    bytes_per_s: float = 0.0


UNDISTURBED = Disturbance()


class Flow:
    """One connection through a link."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.near = near
        self.far = far
        self.lost: Direction | None = None
        """The direction in which bytes were dropped."""

    def abort(self) -> None:
        for writer in (self.near, self.far):
            reset(writer)


class Link:
    """All connections from one source to one destination. Used only on the event loop of the proxies."""

    def __init__(self) -> None:
        self.disturbances: dict[int, Disturbance] = {}
        self.flows: set[Flow] = set()
        self.changed = asyncio.Event()

    @property
    def current(self) -> Disturbance:
        """The latest disturbance wins."""
        return next(reversed(self.disturbances.values()), UNDISTURBED)

    def disturb(self, number: int, disturbance: Disturbance) -> None:
        self.disturbances[number] = disturbance
        self.note_change()

    def heal(self, number: int) -> None:
        self.disturbances.pop(number, None)
        self.note_change()

    def note_change(self) -> None:
        current = self.current
        for flow in list(self.flows):
            if current.resets or (flow.lost is not None and flow.lost is not current.swallows):
                flow.abort()
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    async def pump(
        self,
        flow: Flow,
        direction: Direction,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(READ_BYTES):
                while self.current.holds:
                    await self.changed.wait()
                current = self.current
                if current.swallows is direction:
                    flow.lost = direction
                    continue
                if current.latency_s:
                    await asyncio.sleep(current.latency_s)
                if current.bytes_per_s:
                    await asyncio.sleep(len(data) / current.bytes_per_s)
                writer.write(data)
                await writer.drain()


class Proxy:
    """Proxy in front of one port."""

    def __init__(self, target: int, link_of: Callable[[int], Link | None]) -> None:
        """`link_of` takes the source port of a connection."""
        self.target = target
        self.link_of = link_of
        self.server: asyncio.Server | None = None
        self.tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> int:
        self.server = await asyncio.start_server(self.accept, HOST, 0)
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            await self.serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            reset(writer)
        finally:
            self.tasks.discard(task)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = self.link_of(writer.get_extra_info("peername")[1])
        if link is None or link.current.resets:
            reset(writer)
            return
        far_reader, far = await asyncio.open_connection(HOST, self.target)
        flow = Flow(writer, far)
        link.flows.add(flow)
        pumps = [
            asyncio.ensure_future(link.pump(flow, Direction.REQUESTS, reader, far)),
            asyncio.ensure_future(link.pump(flow, Direction.RESPONSES, far_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            link.flows.discard(flow)
            flow.abort()

    def close(self) -> None:
        if self.server is not None:
            self.server.close()
        for task in list(self.tasks):
            task.cancel()


class Proxies:
    """The proxies of one cluster, on their own thread. Methods may be called from any other thread."""

    def __init__(self, pids: Callable[[], dict[int, int]]) -> None:
        """`pids` returns the broker id of each process id."""
        self.pids = pids
        self.thread = LoopThread("proxies")
        self.links: dict[tuple[int, int], Link] = {}
        self.opened: list[Proxy] = []

    def between(self, broker: int, port: int) -> int:
        """Open a proxy port to the inter-broker listener of a broker."""
        return self.open(port, lambda peer: self.link_from(peer, broker))

    def in_front_of(self, key: tuple[int, int], port: int) -> int:
        """Open a proxy port to another port, with one link for all connections."""
        return self.open(port, lambda _: self.link(key))

    def open(self, port: int, link_of: Callable[[int], Link | None]) -> int:
        proxy = Proxy(port, link_of)
        self.opened.append(proxy)
        return self.thread.run(proxy.open())

    def link(self, key: tuple[int, int]) -> Link:
        if key not in self.links:
            self.links[key] = Link()
        return self.links[key]

    def link_from(self, peer: int, destination: int) -> Link | None:
        source = broker_with_port(self.pids(), peer)
        return None if source is None else self.link((source, destination))

    def disturb(self, key: tuple[int, int], number: int, disturbance: Disturbance) -> None:
        """`number` distinguishes overlapping disturbances of a link."""
        self.thread.call(lambda: self.link(key).disturb(number, disturbance))

    def heal(self, key: tuple[int, int], number: int) -> None:
        self.thread.call(lambda: self.link(key).heal(number))

    def end(self) -> None:
        def close() -> None:
            for proxy in self.opened:
                proxy.close()

        self.thread.call(close)
        self.thread.end()


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST and drop unsent bytes."""
    with suppress(OSError):
        raw: socket.socket = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def broker_with_port(pids: dict[int, int], port: int) -> int | None:
    """The broker whose process owns this local port; None if there is none or it has just exited."""
    for pid, broker in pids.items():
        with suppress(psutil.Error):
            for connection in psutil.Process(pid).net_connections("tcp4"):
                if connection.laddr.port == port:
                    return broker
    return None
