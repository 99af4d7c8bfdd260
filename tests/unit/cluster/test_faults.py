"""Cut connections and slow disks, with real sockets and files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.cluster.faults import BrokerFaults, CuttableNetwork, SlowDisk
from barnabas.world.network import SocketNetwork
from barnabas.world.ports import Listener, Stream

DEADLINE_S = 20.0
DELAY_S = 0.05


class Ear:
    """Collects the bytes of a stream."""

    def __init__(self) -> None:
        self.data = bytearray(1024)
        self.heard = b""
        self.arrived = asyncio.Event()
        self.stream: Stream | None = None

    def attach(self, stream: Stream) -> Ear:
        self.stream = stream
        return self

    def buffer(self) -> memoryview:
        return memoryview(self.data)

    def received(self, size: int) -> None:
        self.heard += self.data[:size]
        self.arrived.set()

    def drained(self) -> None: ...

    def closed(self, reason: str) -> None: ...


class Pair:
    """A broker and its peer."""

    def __init__(self, listener: Listener, peer: Ear, network: CuttableNetwork) -> None:
        self.host, self.port = listener.address
        self.peer = peer
        self.network = network
        self.ear = Ear()

    async def connect(self) -> Stream:
        return await self.network.connect(self.host, self.port, self.ear.attach)

    def cut(self, *ports: int) -> None:
        self.network.faults.cut_ports = set(ports)
        self.network.apply_cuts()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    network, peer = SocketNetwork(), Ear()
    listener = await network.listen("127.0.0.1", 0, peer.attach)
    yield Pair(listener, peer, CuttableNetwork(network, BrokerFaults()))
    network.drop()
    network.close()


async def until(event: asyncio.Event) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await event.wait()


async def test_cut_stream_delivers_requests_and_responses_after_healing(pair: Pair) -> None:
    stream = await pair.connect()
    stream.send([b"one "])
    await until(pair.peer.arrived)
    pair.cut(pair.port)
    assert stream.send([b"two ", b"three"])
    assert pair.peer.stream is not None
    pair.peer.stream.send([b"reply"])
    await asyncio.sleep(DELAY_S)  # nothing may arrive: there is no condition to wait for
    assert pair.peer.heard == b"one "
    assert pair.ear.heard == b""
    pair.peer.arrived.clear()
    pair.cut()
    await until(pair.peer.arrived)
    await until(pair.ear.arrived)
    assert pair.peer.heard == b"one two three"
    assert pair.ear.heard == b"reply"


async def test_other_ports_are_not_cut(pair: Pair) -> None:
    stream = await pair.connect()
    pair.cut(pair.port + 1)
    stream.send([b"hello"])
    await until(pair.peer.arrived)
    assert pair.peer.heard == b"hello"


async def test_connect_waits_until_cut_is_healed(pair: Pair) -> None:
    pair.cut(pair.port)
    connecting = asyncio.ensure_future(pair.connect())
    await asyncio.sleep(DELAY_S)
    pair.cut(pair.port, 1)
    await asyncio.sleep(DELAY_S)
    assert not connecting.done()
    pair.cut()
    async with asyncio.timeout(DEADLINE_S):
        (await connecting).send([b"hello"])
    await until(pair.peer.arrived)


async def test_stream_paused_by_its_owner_stays_paused_after_healing(pair: Pair) -> None:
    stream = await pair.connect()
    stream.send([b"hello"])
    await until(pair.peer.arrived)
    stream.pause()
    pair.cut(pair.port)
    assert pair.peer.stream is not None
    pair.peer.stream.send([b"reply"])
    pair.cut()
    await asyncio.sleep(DELAY_S)
    assert pair.ear.heard == b""
    pair.cut(pair.port)
    stream.resume()
    await asyncio.sleep(DELAY_S)
    assert pair.ear.heard == b""
    pair.cut()
    await until(pair.ear.arrived)


async def test_slow_disk_delays_writes_and_syncs(tmp_path: Path) -> None:
    faults = BrokerFaults()
    disk = SlowDisk(faults, 16)
    files = [
        each.open(str(tmp_path / name), create=True)
        for each, name in ((disk, "log"), (disk.for_thread(), "cleaned"))
    ]
    faults.disk_delay_s = DELAY_S
    for file in files:
        started = time.monotonic()
        file.append([b"record"])
        assert time.monotonic() - started >= DELAY_S
    started = time.monotonic()
    disk.sync_now(files)
    await disk.sync(files)
    disk.replace_bytes(str(tmp_path / "checkpoint"), b"0")
    assert time.monotonic() - started >= 3 * DELAY_S
    for file in files:
        assert file.read(0, 10) == b"record"
        file.close()
    disk.close()
