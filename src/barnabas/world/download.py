"""Downloads of small documents from https://, http:// and file:// addresses, and forms sent to web servers.

They block: call them in a thread. Errors do not quote URLs, headers and bodies: they may contain secrets.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.message import Message
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import Timer
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    Request,
    build_opener,
    url2pathname,
)

from barnabas.security.token_request import web_server
from barnabas.world.ports import DownloadRefused

PIECE_BYTES = 1 << 16
REFUSED_MIN, REFUSED_MAX = 400, 499
RETRIABLE = (408, 429)
"""HTTP status codes between these two with which a server may accept the same request later."""


class NoRedirects(HTTPRedirectHandler):
    """A redirect could lead to another host, or to one without TLS."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


class Connections(HTTPHandler, HTTPSHandler):
    """Opens the connections of one request, and ends them at its deadline.

    The timeout of a socket limits only the wait for the next byte.
    """

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[HTTPConnection] = []

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self.connect_http, req)

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self.connect_https, req)

    def connect_http(self, *arguments: Any, **options: Any) -> HTTPConnection:
        self.opened.append(HTTPConnection(*arguments, **options))
        return self.opened[-1]

    def connect_https(self, *arguments: Any, **options: Any) -> HTTPConnection:
        self.opened.append(HTTPSConnection(*arguments, **options))
        return self.opened[-1]

    def end(self) -> None:
        """Called in another thread. A thread that reads gets an error."""
        for connection in self.opened:
            sock = connection.sock
            if sock is not None:
                with suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)


class UrlDownloader:
    """Implements `Downloader`."""

    def get(self, url: str, *, timeout_s: float, bytes_max: int) -> bytes:
        if not url.startswith("file:"):
            return send(url, {}, None, timeout_s, bytes_max)
        try:
            with open(url2pathname(urlsplit(url).path), "rb") as file:  # noqa: PTH123
                return read_limited(file.read, time.monotonic() + timeout_s, bytes_max)
        except (OSError, ValueError) as error:
            raise ConnectionError(f"cannot read {url}: {error}") from error

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float, bytes_max: int
    ) -> bytes:
        return send(url, headers, body, timeout_s, bytes_max)


def send(
    url: str, headers: Mapping[str, str], body: bytes | None, timeout_s: float, bytes_max: int
) -> bytes:
    """Send a request to a web server, with POST if it has a body. Raises ConnectionError."""
    server = web_server(url)
    if not server.startswith(("http://", "https://")):
        raise ConnectionError(f"cannot read {server}: only http:// and https:// are supported")
    deadline = time.monotonic() + timeout_s
    connections = Connections()
    timer = Timer(timeout_s, connections.end)
    timer.start()
    try:
        opener = build_opener(NoRedirects, connections)
        request = Request(url, data=body, headers=dict(headers))
        with opener.open(request, timeout=timeout_s) as response:
            return read_limited(response.read1, deadline, bytes_max)
    except HTTPError as error:
        error.close()  # it is a response too, with an open connection
        is_refused = REFUSED_MIN <= error.code <= REFUSED_MAX and error.code not in RETRIABLE
        raise (DownloadRefused if is_refused else ConnectionError)(
            f"cannot read {server}: {error}"
        ) from error
    except (OSError, HTTPException, ValueError) as error:
        if time.monotonic() >= deadline:
            why = f"no complete response within {timeout_s:g} s"
        else:
            # The text of other errors can contain the URL.
            why = str(error) if isinstance(error, OSError) else type(error).__name__
        raise ConnectionError(f"cannot read {server}: {why}") from error
    finally:
        timer.cancel()


def read_limited(read: Callable[[int], bytes], deadline: float, bytes_max: int) -> bytes:
    data = bytearray()
    while True:
        piece = read(PIECE_BYTES)
        if time.monotonic() > deadline:  # the end may be that of an ended connection
            raise ConnectionError("the download takes too long")
        if not piece:
            return bytes(data)
        data += piece
        if len(data) > bytes_max:
            raise ConnectionError(f"the document has more than {bytes_max} bytes")
