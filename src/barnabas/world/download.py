"""Downloads of small documents from https://, http:// and file:// addresses, and forms sent to web servers.

They block: call them in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from email.message import Message
from http.client import HTTPException
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener, url2pathname

PIECE_BYTES = 1 << 16


class NoRedirects(HTTPRedirectHandler):
    """A redirect could lead to another host, or to one without TLS."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


class UrlDownloader:
    """Implements `Downloader`."""

    def get(self, url: str, *, timeout_s: float, bytes_max: int) -> bytes:
        parts = urlsplit(url)
        if parts.scheme != "file":
            return send(url, {}, None, timeout_s, bytes_max)
        try:
            with open(url2pathname(parts.path), "rb") as file:  # noqa: PTH123
                return read_limited(file.read, time.monotonic() + timeout_s, bytes_max)
        except OSError as error:
            raise ConnectionError(f"cannot read {url}: {error}") from error

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float, bytes_max: int
    ) -> bytes:
        return send(url, headers, body, timeout_s, bytes_max)


def send(
    url: str, headers: Mapping[str, str], body: bytes | None, timeout_s: float, bytes_max: int
) -> bytes:
    """Send a request to a web server, with POST if it has a body. Errors do not contain headers and body."""
    deadline = time.monotonic() + timeout_s
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ConnectionError(f"{parts.scheme}:// addresses are not supported")
    try:
        opener = build_opener(NoRedirects)
        request = Request(url, data=body, headers=dict(headers))
        with opener.open(request, timeout=timeout_s) as response:
            return read_limited(response.read1, deadline, bytes_max)
    except ConnectionError:
        raise
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, HTTPError):
            error.close()  # it is a response too, with an open connection
        # Without the rest of the URL, which may contain a password.
        raise ConnectionError(f"cannot read {parts.scheme}://{parts.hostname}: {error}") from error


def read_limited(read: Callable[[int], bytes], deadline: float, bytes_max: int) -> bytes:
    data = bytearray()
    while piece := read(PIECE_BYTES):
        data += piece
        if len(data) > bytes_max:
            raise ConnectionError(f"the document has more than {bytes_max} bytes")
        if time.monotonic() > deadline:
            raise ConnectionError("the download takes too long")
    return bytes(data)
