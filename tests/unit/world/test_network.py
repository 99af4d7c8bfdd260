"""Socket network on loopback: data arrives complete and in order, and slow readers block no others."""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.errors import AddressInUse
from barnabas.world import socket_stream
from barnabas.world.disk import RealDisk
from barnabas.world.network import SocketListener, SocketNetwork
from barnabas.world.ports import FileSlice, Part
from barnabas.world.socket_stream import SocketStream

DEADLINE = 30.0


class Collector:
    """Receiver that collects data and records its callbacks."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream
        self.space = memoryview(bytearray(4096))
        self.data = bytearray()
        self.drained_count = 0
        self.closed_reasons: list[str] = []
        self.changed = asyncio.Event()

    def buffer(self) -> memoryview:
        return self.space

    def received(self, size: int) -> None:
        self.data += self.space[:size]
        self.changed.set()

    def drained(self) -> None:
        self.drained_count += 1
        self.changed.set()

    def closed(self, reason: str) -> None:
        self.closed_reasons.append(reason)
        self.changed.set()

    async def until(self, condition: object) -> None:
        async with asyncio.timeout(DEADLINE):
            while not condition():  # type: ignore[operator]
                self.changed.clear()
                await self.changed.wait()


class Server:
    """Listener whose connections are collectors."""

    def __init__(self) -> None:
        self.network = SocketNetwork()
        self.accepted: asyncio.Queue[Collector] = asyncio.Queue()
        self.listener: SocketListener | None = None

    async def start(self) -> None:
        self.listener = await self.network.listen("127.0.0.1", 0, self.accept)

    def accept(self, stream: SocketStream) -> Collector:
        collector = Collector(stream)
        self.accepted.put_nowait(collector)
        return collector

    async def pair(self) -> tuple[Collector, socket.socket]:
        """Return our end of a connection, and a plain socket as the other end."""
        assert self.listener is not None
        client = await asyncio.to_thread(socket.create_connection, self.listener.address)
        async with asyncio.timeout(DEADLINE):
            return await self.accepted.get(), client


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.start()
    yield server
    assert server.listener is not None
    await server.listener.close()


def read_exactly(client: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = client.recv(min(65536, size - len(data)))
        if not part:
            break
        data += part
    return bytes(data)


async def test_sent_parts_arrive_in_order(server: Server) -> None:
    ours, client = await server.pair()
    with client:
        ours.stream.send([b"one ", bytearray(b"two "), memoryview(b"three")])
        assert await asyncio.to_thread(read_exactly, client, 13) == b"one two three"
        client.sendall(b"answer")
        await ours.until(lambda: bytes(ours.data) == b"answer")


async def test_file_slices_and_buffers_keep_their_order(server: Server, tmp_path: Path) -> None:
    ours, client = await server.pair()
    disk = RealDisk()
    content = random.Random(7).randbytes(3_000_000)
    (tmp_path / "log").write_bytes(content)
    file = disk.open(str(tmp_path / "log"))
    parts: list[Part] = []
    expected = b""
    at = 0
    for size in (10, 16 * 1024 - 1, 16 * 1024, 5, 1_000_000, 1, 0, 500_000):
        parts += [b"<%d>" % size, FileSlice(file, at, size)]
        expected += b"<%d>" % size + content[at : at + size]
        at += size
    with client:
        reading = asyncio.to_thread(read_exactly, client, len(expected))
        task = asyncio.ensure_future(reading)
        if not ours.stream.send(parts):
            await ours.until(lambda: ours.drained_count == 1)
        assert await task == expected
    file.close()


@pytest.mark.parametrize("seconds", [60.0, -1.0])
async def test_page_residency_is_checked_again_after_a_while(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    checks: list[int] = []

    def is_resident(_: int, position: int) -> bool:
        checks.append(position)
        return True

    monkeypatch.setattr(socket_stream, "RESIDENT_SECONDS", seconds)
    monkeypatch.setattr(socket_stream, "is_resident", is_resident)
    server.network.send_buffer_bytes = 64 * 1024
    content = random.Random(8).randbytes(3_000_000)
    (tmp_path / "log").write_bytes(content)
    file = RealDisk().open(str(tmp_path / "log"))
    ours, client = await server.pair()
    with client:
        assert ours.stream.send([b"first ", FileSlice(file, 0, len(content)), b" last"]) is False
        assert ours.drained_count == 0
        expected = b"first " + content + b" last"
        assert await asyncio.to_thread(read_exactly, client, len(expected)) == expected
        await ours.until(lambda: ours.drained_count == 1)
    assert checks[:2] == [0, len(content) - 1]
    assert (len(checks) == 2) is (seconds > 0)
    file.close()


async def test_drained_is_called_once_slow_reader_has_read(server: Server) -> None:
    ours, client = await server.pair()
    data = bytes(20_000_000)
    with client:
        assert ours.stream.send([data]) is False
        assert ours.drained_count == 0
        assert len(await asyncio.to_thread(read_exactly, client, len(data))) == len(data)
        await ours.until(lambda: ours.drained_count == 1)
        assert ours.stream.send([b"more"]) is True


async def test_paused_stream_is_not_read(server: Server) -> None:
    ours, client = await server.pair()
    with client:
        ours.stream.pause()
        client.sendall(b"hello")
        for _ in range(5):
            await asyncio.sleep(0)
        assert not ours.data
        ours.stream.resume()
        await ours.until(lambda: bytes(ours.data) == b"hello")


async def test_closed_is_called_exactly_once(server: Server) -> None:
    ours, client = await server.pair()
    client.close()
    await ours.until(lambda: ours.closed_reasons == ["closed by peer"])
    ours.stream.close("again")
    assert ours.stream.send([b"too late"]) is True
    assert ours.closed_reasons == ["closed by peer"]


async def test_file_shorter_than_slice_closes_connection(server: Server, tmp_path: Path) -> None:
    ours, client = await server.pair()
    (tmp_path / "log").write_bytes(bytes(20_000))
    file = RealDisk().open(str(tmp_path / "log"))
    with client:
        ours.stream.send([FileSlice(file, 0, 40_000)])
        await ours.until(lambda: len(ours.closed_reasons) == 1)
    assert "shorter" in ours.closed_reasons[0]
    file.close()


async def test_address_in_use_is_reported(server: Server) -> None:
    assert server.listener is not None
    host, port = server.listener.address
    with pytest.raises(AddressInUse, match=f"{port} is in use"):
        await server.network.listen(host, port, server.accept)


async def test_refused_connection_is_a_connection_error(server: Server) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(ConnectionError):
        await server.network.connect("127.0.0.1", port, Collector)


async def test_two_own_streams_exchange_data(server: Server) -> None:
    assert server.listener is not None
    stream = await server.network.connect(*server.listener.address, Collector)
    theirs = await server.accepted.get()
    stream.send([b"from us"])
    await theirs.until(lambda: bytes(theirs.data) == b"from us")
    ours = stream.receiver
    assert isinstance(ours, Collector)
    theirs.stream.send([b"from them"])
    await ours.until(lambda: bytes(ours.data) == b"from them")
    stream.close("done")
    await theirs.until(lambda: len(theirs.closed_reasons) == 1)


async def test_closed_connection_is_freed_without_garbage_collection(server: Server) -> None:
    """Many closed connections would otherwise hold memory until the next full collection."""
    collector, client = await server.pair()
    gone = weakref.ref(collector)
    gc.disable()
    try:
        client.close()
        closed = collector.closed_reasons
        await collector.until(lambda: closed)
        del collector
        assert gone() is None
    finally:
        gc.enable()


async def test_dropped_network_closes_and_refuses_all_connections(
    server: Server,
) -> None:
    collector, client = await server.pair()
    assert server.listener is not None
    address = server.listener.address
    collector.stream.send([b"answered before"])
    server.network.drop()
    server.network.drop()
    collector.stream.send([b"answered after"])
    client.settimeout(DEADLINE)
    assert read_exactly(client, 1024) == b"answered before"
    client.close()
    assert collector.closed_reasons == ["this broker was killed"]
    with pytest.raises(ConnectionRefusedError):
        await asyncio.to_thread(socket.create_connection, address)
    with pytest.raises(ConnectionError, match="killed"):
        await server.network.connect(*address, Collector)


async def test_cancelled_connect_leaves_no_socket() -> None:
    network = SocketNetwork()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()
        connecting = asyncio.create_task(network.connect(host, port, Collector))
        await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
    assert not network.streams
    network.close()
