"""TLS streams on loopback: data arrives complete and in order, and hostile peers cost little."""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import ssl
import weakref
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas.security.tls.context import build_server_context, client_context, read_file
from barnabas.security.tls.settings import TlsSettings
from barnabas.security.tls.stores import read_stores
from barnabas.world import tls_stream
from barnabas.world.disk import RealDisk
from barnabas.world.network import SocketListener, SocketNetwork
from barnabas.world.ports import FileSlice, Part
from barnabas.world.socket_stream import SocketStream
from barnabas.world.tls_stream import PIECE_BYTES
from support.certificates import CertificateFiles
from tests.unit.world.test_network import DEADLINE, Collector

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


class TlsServer:
    """Listener with TLS whose connections are collectors."""

    def __init__(self, settings: TlsSettings) -> None:
        self.network = SocketNetwork()
        self.context = build_server_context(settings, read_stores(settings, read_file))
        self.accepted: asyncio.Queue[Collector] = asyncio.Queue()
        self.failures: asyncio.Queue[str] = asyncio.Queue()
        self.listener: SocketListener | None = None

    async def start(self) -> None:
        self.listener = await self.network.listen("127.0.0.1", 0, self.accept, self)

    def accept(self, stream: SocketStream) -> Collector:
        collector = Collector(stream)
        self.accepted.put_nowait(collector)
        return collector

    def current_context(self) -> ssl.SSLContext:
        return self.context

    def handshake_failed(self, peer: tuple[str, int], reason: str) -> None:
        self.failures.put_nowait(reason)

    @property
    def address(self) -> tuple[str, int]:
        assert self.listener is not None
        return self.listener.address

    async def pair(self, context: ssl.SSLContext) -> tuple[Collector, ssl.SSLSocket]:
        """Return our end of a connection, and a blocking socket as the other end."""
        client = await asyncio.to_thread(self.connect, context)
        async with asyncio.timeout(DEADLINE):
            return await self.accepted.get(), client

    def connect(self, context: ssl.SSLContext) -> ssl.SSLSocket:
        plain = socket.create_connection(self.address, timeout=DEADLINE)
        try:
            return context.wrap_socket(plain, server_hostname="localhost")
        except BaseException:
            plain.close()
            raise

    async def failure(self) -> str:
        async with asyncio.timeout(DEADLINE):
            return await self.failures.get()

    async def stop(self) -> None:
        self.network.drop()
        self.network.close()


def server_settings(files: CertificateFiles, client_auth: str = "none") -> TlsSettings:
    return TlsSettings(
        keystore_location=str(files.server),
        truststore_location=str(files.ca),
        client_auth=client_auth,
    )


def client_settings(files: CertificateFiles, key: Path | None = None) -> TlsSettings:
    return TlsSettings(
        truststore_location=str(files.ca), keystore_location=None if key is None else str(key)
    )


@pytest.fixture
async def server(files: CertificateFiles) -> AsyncIterator[TlsServer]:
    server = TlsServer(server_settings(files))
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def strict_server(files: CertificateFiles) -> AsyncIterator[TlsServer]:
    """Requires client certificates."""
    server = TlsServer(server_settings(files, "required"))
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def context(files: CertificateFiles) -> ssl.SSLContext:
    return client_context(client_settings(files))


def receive(client: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (got := client.recv(1 << 20)):
        data += got
    return bytes(data)


@pytest.mark.parametrize("version", VERSIONS)
async def test_all_parts_arrive_in_order(
    server: TlsServer, context: ssl.SSLContext, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    context.minimum_version = context.maximum_version = version
    content = random.Random(1).randbytes(3_000_000)
    file = RealDisk().open(str(tmp_path / "log"), create=True)
    file.append([content])
    parts: list[Part] = [
        b"header",
        FileSlice(file, 10, 2_000_000),
        b"",
        bytearray(b"x") * PIECE_BYTES,
        memoryview(content)[:200_001],
        FileSlice(file, 5, 100),
        FileSlice(file, 0, PIECE_BYTES),
        b"end",
    ]
    expected = b"".join(
        content[part.position : part.position + part.size]
        if isinstance(part, FileSlice)
        else bytes(part)
        for part in parts
    )
    collector, client = await server.pair(context)
    with client:
        receiving = asyncio.to_thread(receive, client, len(expected))
        assert not collector.stream.send(parts)
        assert await receiving == expected
        await collector.until(lambda: collector.drained_count == 1)
    file.close()


@pytest.mark.parametrize("version", VERSIONS)
async def test_received_bytes_are_complete_and_survive_pauses(
    server: TlsServer, context: ssl.SSLContext, version: ssl.TLSVersion
) -> None:
    context.minimum_version = context.maximum_version = version
    content = random.Random(2).randbytes(2_000_000)
    collector, client = await server.pair(context)
    with client:
        sending = asyncio.create_task(asyncio.to_thread(client.sendall, content))
        before = 0
        while before < len(content):
            await collector.until(lambda seen=before: len(collector.data) > seen)
            collector.stream.pause()
            before = len(collector.data)
            await asyncio.sleep(0)
            assert len(collector.data) == before
            collector.stream.resume()
        await sending
    assert bytes(collector.data) == content
    await collector.until(lambda: collector.closed_reasons)
    assert collector.closed_reasons == ["closed by peer"]


async def test_bytes_after_the_handshake_are_read_without_another_event(
    server: TlsServer, context: ssl.SSLContext
) -> None:
    """The first request may arrive together with the end of the handshake."""
    for _ in range(10):
        collector, client = await server.pair(context)
        with client:
            client.sendall(b"request")
            await collector.until(lambda collector=collector: bytes(collector.data) == b"request")


async def test_slow_reader_blocks_no_other(server: TlsServer, context: ssl.SSLContext) -> None:
    slow, slow_client = await server.pair(context)
    fast, fast_client = await server.pair(context)
    with slow_client, fast_client:
        assert not slow.stream.send([bytes(20_000_000)])
        fast.stream.send([b"hello"])
        assert await asyncio.to_thread(receive, fast_client, 5) == b"hello"
        assert slow.drained_count == 0
        assert len(await asyncio.to_thread(receive, slow_client, 20_000_000)) == 20_000_000
        await slow.until(lambda: slow.drained_count == 1)


async def test_client_certificate_is_known_after_the_handshake(
    strict_server: TlsServer, files: CertificateFiles
) -> None:
    context = client_context(client_settings(files, files.client))
    collector, client = await strict_server.pair(context)
    with client:
        expected = ssl.PEM_cert_to_DER_cert(files.client_identity.certificate.decode())
        assert collector.stream.peer_certificate == expected


@pytest.mark.parametrize("version", VERSIONS)
async def test_invalid_client_certificates_are_refused_with_an_alert(
    strict_server: TlsServer, files: CertificateFiles, version: ssl.TLSVersion
) -> None:
    for key, expected, alert in (
        (None, "no certificate", "CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE"),
        (files.expired_client, "certificate has expired", "CERTIFICATE_EXPIRED"),
        (files.untrusted_client, "issuer", "UNKNOWN_CA"),
    ):
        context = client_context(client_settings(files, key))
        context.minimum_version = context.maximum_version = version
        with pytest.raises(ssl.SSLError, match=alert):
            await asyncio.to_thread(send_and_receive, strict_server, context)
        assert expected in await strict_server.failure()
    assert strict_server.accepted.empty()


def send_and_receive(server: TlsServer, context: ssl.SSLContext) -> None:
    with server.connect(context) as client:
        client.sendall(b"request" * 1000)
        client.recv(1)


async def test_plaintext_client_is_recognized(server: TlsServer) -> None:
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write((20).to_bytes(4, "big") + b"a request in plaintext")
    with suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    assert "does not use TLS" in await server.failure()


async def test_handshake_has_limited_time(
    server: TlsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_stream, "HANDSHAKE_SECONDS_MAX", 0.1)
    reader, writer = await asyncio.open_connection(*server.address)
    assert await reader.read() == b""
    writer.close()
    assert "took longer than 0.1 s" in await server.failure()
    assert not server.network.streams


async def test_new_handshakes_replace_the_oldest(
    server: TlsServer, context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_stream, "HANDSHAKES_MAX", 3)
    silent = [await asyncio.open_connection(*server.address) for _ in range(5)]
    for _ in range(2):
        assert "3 handshakes are in progress" in await server.failure()
    collector, client = await server.pair(context)
    with client:
        client.sendall(b"served")
        await collector.until(lambda: bytes(collector.data) == b"served")
    for _, writer in silent:
        writer.close()


async def test_connections_with_a_failed_handshake_are_counted_until_they_are_closed(
    server: TlsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise one address could hold any number of them open, despite max.connections.per.ip."""
    monkeypatch.setattr(tls_stream, "LINGER_SECONDS", 600.0)
    assert server.listener is not None
    writers = []
    for _ in range(5):
        _, writer = await asyncio.open_connection(*server.address)
        writer.write(b"\x16\x03\x01\x00\x05hello")
        writers.append(writer)
        await server.failure()
    assert server.listener.handshakes_of("127.0.0.1") == 5
    for writer in writers:
        writer.close()
    async with asyncio.timeout(DEADLINE):
        while server.network.streams:
            await asyncio.sleep(0.01)
    assert server.listener.handshakes_of("127.0.0.1") == 0


async def test_random_bytes_close_only_their_connection(
    server: TlsServer, context: ssl.SSLContext
) -> None:
    collector, client = await server.pair(context)
    generator = random.Random(3)
    for _ in range(50):
        _, writer = await asyncio.open_connection(*server.address)
        writer.write(b"\x16\x03\x01" + generator.randbytes(generator.randrange(3000)))
        writer.close()
    with client:
        client.sendall(b"still served")
        await collector.until(lambda: bytes(collector.data) == b"still served")


async def test_connection_between_brokers_verifies_the_host_name(
    server: TlsServer, files: CertificateFiles, context: ssl.SSLContext
) -> None:
    stream = await server.network.connect("127.0.0.1", server.address[1], Collector, context)
    stream.send([b"request"])
    async with asyncio.timeout(DEADLINE):
        collector = await server.accepted.get()
    await collector.until(lambda: bytes(collector.data) == b"request")
    wrong = TlsServer(
        TlsSettings(keystore_location=str(files.wrong_host_server), truststore_location=None)
    )
    await wrong.start()
    with pytest.raises(ConnectionError, match="mismatch"):
        await server.network.connect("127.0.0.1", wrong.address[1], Collector, context)
    await wrong.stop()


async def test_connection_to_a_plaintext_port_fails_with_the_reason(
    server: TlsServer, context: ssl.SSLContext
) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"plaintext")
        writer.close()

    plain = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = plain.sockets[0].getsockname()[1]
    with pytest.raises(ConnectionError, match="does not use TLS"):
        await server.network.connect("127.0.0.1", port, Collector, context)
    plain.close()


async def test_cancelled_connection_is_closed(server: TlsServer, context: ssl.SSLContext) -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    connecting = asyncio.create_task(
        server.network.connect("127.0.0.1", silent.getsockname()[1], Collector, context)
    )
    async with asyncio.timeout(DEADLINE):
        while not server.network.streams:
            await asyncio.sleep(0)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert not server.network.streams
    assert not server.network.handshakes.in_progress
    silent.close()


async def test_closed_connection_is_freed_without_garbage_collection(
    server: TlsServer, context: ssl.SSLContext
) -> None:
    collector, client = await server.pair(context)
    gone = weakref.ref(collector)
    gc.disable()
    try:
        await asyncio.to_thread(client.unwrap)
        client.close()
        closed = collector.closed_reasons
        await collector.until(lambda: closed)
        assert closed == ["closed by peer"]
        del collector
        assert gone() is None
    finally:
        gc.enable()


async def test_new_connections_use_the_current_context(
    server: TlsServer, files: CertificateFiles, context: ssl.SSLContext
) -> None:
    _, before = await server.pair(context)
    settings = TlsSettings(keystore_location=str(files.wrong_host_server))
    server.context = build_server_context(settings, read_stores(settings, read_file))
    with before, pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.to_thread(server.connect, context)
