"""Faults of one broker in this process: cut connections to other brokers, and a slow disk.

The classes wrap or extend the ports of a broker (world/ports.py). Without a fault they only pass calls on.

    broker 1 ─ connect ─► CuttableStream ─► socket ─► broker 2     requests one way, responses the other

A cut is silent, as in a network that drops packets: connections stay open, and a new one does not come about. Bytes
that were sent meanwhile arrive after the cut is healed, unless a timeout has closed the connection. Clients and the
registry still reach all brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence, Set
from ssl import SSLContext
from weakref import WeakSet

from barnabas.client.blocking import pause
from barnabas.world.disk import THREAD_DESCRIPTORS, RealDisk, RealFile
from barnabas.world.ports import (
    Buffer,
    File,
    Listener,
    Network,
    Part,
    Receiver,
    ServerTls,
    Stream,
)


class BrokerFaults:
    """The faults of one broker. They outlast a restart of the broker."""

    def __init__(self) -> None:
        self.cut_ports: Set[int] = frozenset()
        """Ports of the brokers that this broker cannot reach."""
        self.disk_delay_s = 0.0
        """Seconds that each write and each fsync takes longer."""


class CuttableNetwork:
    """The network of one broker. Connections that the broker opens can be cut. Used on the loop of the broker."""

    def __init__(self, network: Network, faults: BrokerFaults) -> None:
        self.network = network
        self.faults = faults
        self.streams: WeakSet[CuttableStream] = WeakSet()
        self.changed = asyncio.Event()
        """Set by the next change of `faults.cut_ports`."""

    def host_name(self) -> str:
        return self.network.host_name()

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[Stream], Receiver | None],
        tls: ServerTls | None = None,
    ) -> Listener:
        return await self.network.listen(host, port, accept, tls)

    async def connect(
        self,
        host: str,
        port: int,
        accept: Callable[[Stream], Receiver],
        tls: SSLContext | None = None,
    ) -> Stream:
        """Open a connection. If the peer is cut off, wait until the cut is healed: the caller has a timeout."""
        while port in self.faults.cut_ports:
            await self.changed.wait()
        opened: list[CuttableStream] = []

        def accept_cuttable(stream: Stream) -> Receiver:
            opened.append(CuttableStream(stream, port))
            return accept(opened[0])

        await self.network.connect(host, port, accept_cuttable, tls)
        (stream,) = opened
        self.streams.add(stream)
        stream.set_cut(port in self.faults.cut_ports)
        return stream

    def apply_cuts(self) -> None:
        """Cut and heal the open connections after a change of `faults.cut_ports`."""
        for stream in list(self.streams):
            stream.set_cut(stream.port in self.faults.cut_ports)
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class CuttableStream:
    """A connection to another broker. While it is cut, it reads nothing and keeps what is sent."""

    def __init__(self, stream: Stream, port: int) -> None:
        self.stream = stream
        self.port = port
        self.is_cut = False
        self.is_paused = False
        """Whether the owner has paused reading."""
        self.unsent: list[Part] = []

    @property
    def peer(self) -> tuple[str, int]:
        return self.stream.peer

    @property
    def peer_certificate(self) -> bytes | None:
        return self.stream.peer_certificate

    def send(self, parts: Sequence[Part]) -> bool:
        if self.is_cut:
            self.unsent.extend(parts)
            return True
        return self.stream.send(parts)

    def pause(self) -> None:
        self.is_paused = True
        self.stream.pause()

    def resume(self) -> None:
        self.is_paused = False
        if not self.is_cut:
            self.stream.resume()

    def close(self, reason: str) -> None:
        self.stream.close(reason)

    def set_cut(self, is_cut: bool) -> None:
        if is_cut == self.is_cut:
            return
        self.is_cut = is_cut
        if is_cut:
            self.stream.pause()
            return
        unsent, self.unsent = self.unsent, []
        self.stream.send(unsent)
        if not self.is_paused:
            self.stream.resume()


class SlowDisk(RealDisk):
    """A disk whose writes and fsyncs take `faults.disk_delay_s` longer. A write blocks the broker meanwhile."""

    def __init__(self, faults: BrokerFaults, descriptors: int) -> None:
        super().__init__(descriptors)
        self.faults = faults

    def for_thread(self) -> SlowDisk:
        return SlowDisk(self.faults, THREAD_DESCRIPTORS)

    def new_file(self, path: str, descriptor: int, size: int) -> RealFile:
        return SlowFile(self, path, descriptor, size)

    def write_and_rename(self, path: str, data: bytes, *, sync: bool) -> None:
        self.delay()
        super().write_and_rename(path, data, sync=sync)

    def sync_now(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        self.delay()
        super().sync_now(files, directories)

    async def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        if self.faults.disk_delay_s:
            await asyncio.sleep(self.faults.disk_delay_s)
        await super().sync(files, directories)

    def delay(self) -> None:
        if self.faults.disk_delay_s:
            pause(self.faults.disk_delay_s)


class SlowFile(RealFile):
    __slots__ = ("delay",)

    def __init__(self, disk: SlowDisk, path: str, descriptor: int, size: int) -> None:
        super().__init__(disk, path, descriptor, size)
        self.delay = disk.delay

    def append(self, parts: Sequence[Buffer]) -> None:
        self.delay()
        super().append(parts)
