"""The HTTP server: what it accepts, and its limits on size, time and connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas.metrics import http
from barnabas.metrics.http import (
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    HttpRequest,
    HttpResponse,
    HttpServer,
    parse_request,
    text_response,
)
from barnabas.world.network import SocketNetwork

GET = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
LARGE = 5_000_000


async def respond(path: str) -> HttpResponse:
    if path == "/bug":
        raise KeyError(path)
    if path == "/large":
        return HttpResponse(200, b"x" * LARGE)
    return text_response(200 if path == "/x" else 404, path)


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    network = SocketNetwork()
    opened = HttpServer(network, respond)
    await opened.open("127.0.0.1", 0)
    yield opened
    await opened.close()
    network.close()


async def exchange(server: HttpServer, *parts: bytes) -> bytes:
    """Send the parts one after the other, and return all that is received."""
    assert server.listener is not None
    reader, writer = await asyncio.open_connection(*server.listener.address)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.01)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def status(response: bytes) -> int:
    return int(response.split(b" ")[1])


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"GET /metrics HTTP/1.1", HttpRequest("/metrics")),
        (b"GET /metrics?a=b HTTP/1.0\r\nA: b", HttpRequest("/metrics")),
        (b"HEAD / HTTP/1.1", HttpRequest("/", True)),
        (b"POST / HTTP/1.1", 405),
        (b"GET http://a/ HTTP/1.1", 400),
        (b"GET / HTTP/2", 400),
        (b"GET /", 400),
        (b"\xff\x00", 400),
        (b"", 400),
    ],
)
def test_requests_are_parsed(head: bytes, expected: HttpRequest | int) -> None:
    parsed = parse_request(head)
    assert parsed == expected or (isinstance(parsed, HttpResponse) and parsed.status == expected)


async def test_get_is_answered_and_the_connection_closed(server: HttpServer) -> None:
    assert (await exchange(server, GET)).endswith(b"\r\n\r\n/x\n")
    assert (await exchange(server, GET[:5], GET[5:])).endswith(b"\r\n\r\n/x\n")
    assert (await exchange(server, GET.replace(b"GET", b"HEAD"))).endswith(
        b"Connection: close\r\n\r\n"
    )
    assert not server.connections


async def test_large_response_arrives_whole(server: HttpServer) -> None:
    response = await exchange(server, GET.replace(b"/x", b"/large"))
    assert len(response.partition(b"\r\n\r\n")[2]) == LARGE


async def test_errors_have_their_status(
    server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    assert status(await exchange(server, GET.replace(b"/x", b"/y"))) == 404
    assert status(await exchange(server, b"DELETE /x HTTP/1.1\r\n\r\n")) == 405
    assert status(await exchange(server, b"nonsense\r\n\r\n")) == 400
    assert status(await exchange(server, b"GET /" + b"x" * (HEAD_BYTES_MAX - 5))) == 431
    assert status(await exchange(server, GET.replace(b"/x", b"/bug"))) == 500
    assert "cannot answer an HTTP request" in caplog.text


async def test_connections_over_the_limit_are_closed(server: HttpServer) -> None:
    assert server.listener is not None
    opened = [
        await asyncio.open_connection(*server.listener.address) for _ in range(CONNECTIONS_MAX)
    ]
    while len(server.connections) < CONNECTIONS_MAX:
        await asyncio.sleep(0.001)
    assert await exchange(server, GET) == b""
    for _, writer in opened:
        writer.close()
    while server.connections:
        await asyncio.sleep(0.001)
    assert status(await exchange(server, GET)) == 200


async def test_silent_client_is_disconnected(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "TIMEOUT_SECONDS", 0.05)
    assert await exchange(server, GET[:10]) == b""
    assert not server.connections
