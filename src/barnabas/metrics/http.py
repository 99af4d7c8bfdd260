"""A small HTTP server on the broker's event loop: GET and HEAD of a few paths, one request per connection.

Limits: HEAD_BYTES_MAX per request, CONNECTIONS_MAX connections, TIMEOUT_SECONDS from the connection to the last byte.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from msgspec import Struct

from barnabas.world.ports import Listener, Network, Stream

logger = logging.getLogger("barnabas.http")

HEAD_BYTES_MAX = 8192
CONNECTIONS_MAX = 32
TIMEOUT_SECONDS = 10.0
END_OF_HEAD = b"\r\n\r\n"
REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class HttpResponse(Struct, frozen=True):
    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class HttpRequest(Struct, frozen=True):
    path: str
    is_head: bool = False
    """Whether the response has no body."""


Respond = Callable[[str], Awaitable[HttpResponse]]
"""Returns the response for a path, without its query."""


def text_response(status: int, text: str) -> HttpResponse:
    return HttpResponse(status, f"{text}\n".encode())


def parse_request(head: bytes) -> HttpRequest | HttpResponse:
    """Parse the head of a request. Returns an error response if it is not valid, or not a GET or HEAD."""
    line = head.partition(b"\r\n")[0].decode("iso-8859-1")
    words = line.split(" ")
    if len(words) != 3 or not words[1].startswith("/") or not words[2].startswith("HTTP/1."):
        return text_response(400, "not an HTTP/1 request")
    if words[0] not in ("GET", "HEAD"):
        return text_response(405, "only GET is supported")
    return HttpRequest(words[1].partition("?")[0], words[0] == "HEAD")


def encode_http_response(response: HttpResponse, *, is_head: bool = False) -> bytes:
    lines = [
        f"HTTP/1.1 {response.status} {REASONS[response.status]}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        *(["Allow: GET, HEAD"] if response.status == 405 else []),
        "Connection: close",
    ]
    head = "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"
    return head if is_head else head + response.body


class HttpServer:
    """Listens on one address of the broker."""

    def __init__(self, network: Network, respond: Respond) -> None:
        self.network = network
        self.respond = respond
        self.listener: Listener | None = None
        self.connections: dict[HttpConnection, None] = {}

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and return the address. Port 0 lets the system choose a port. Raises AddressInUse."""
        self.listener = await self.network.listen(host, port, self.accept)
        return self.listener.address

    def accept(self, stream: Stream) -> HttpConnection | None:
        if len(self.connections) >= CONNECTIONS_MAX:
            return None
        connection = HttpConnection(self, stream)
        self.connections[connection] = None
        return connection

    async def close(self) -> None:
        if self.listener is not None:
            await self.listener.close()
            self.listener = None
        for connection in list(self.connections):
            connection.stream.close("broker is shutting down")


class HttpConnection:
    """One request. Implements `Receiver`."""

    def __init__(self, server: HttpServer, stream: Stream) -> None:
        self.server = server
        self.stream = stream
        self.data = bytearray(HEAD_BYTES_MAX)
        self.size = 0
        self.task: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self.timer = loop.call_later(TIMEOUT_SECONDS, self.stream.close, "timed out")

    def buffer(self) -> memoryview:
        return memoryview(self.data)[self.size :]

    def received(self, size: int) -> None:
        self.size += size
        end = self.data.find(END_OF_HEAD, 0, self.size)
        if end < 0 and self.size < HEAD_BYTES_MAX:
            return
        self.stream.pause()
        if end < 0:
            request: HttpRequest | HttpResponse = text_response(431, "the request is too large")
        else:
            request = parse_request(bytes(self.data[:end]))
        self.task = asyncio.get_running_loop().create_task(self.answer(request))

    async def answer(self, request: HttpRequest | HttpResponse) -> None:
        is_head = isinstance(request, HttpRequest) and request.is_head
        try:
            response = (
                await self.server.respond(request.path)
                if isinstance(request, HttpRequest)
                else request
            )
        except Exception:
            logger.exception("cannot answer an HTTP request")
            response = text_response(500, "internal error; see the log of the broker")
        if self.stream.send([encode_http_response(response, is_head=is_head)]):
            self.stream.close("answered")

    def drained(self) -> None:
        self.stream.close("answered")

    def closed(self, reason: str) -> None:
        self.timer.cancel()
        self.server.connections.pop(self, None)
        if self.task is not None and self.task is not asyncio.current_task():
            self.task.cancel()
