"""Downloads of small documents from https://, http:// and file:// addresses. They block: call them in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from email.message import Message
from http.client import HTTPException
from typing import IO
from urllib.error import URLError
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
        deadline = time.monotonic() + timeout_s
        parts = urlsplit(url)
        try:
            if parts.scheme == "file":
                with open(url2pathname(parts.path), "rb") as file:  # noqa: PTH123
                    return read_limited(file.read, deadline, bytes_max)
            if parts.scheme not in ("http", "https"):
                raise ConnectionError(f"{parts.scheme}:// addresses are not supported")
            opener = build_opener(NoRedirects)
            with opener.open(Request(url), timeout=timeout_s) as response:
                return read_limited(response.read1, deadline, bytes_max)
        except ConnectionError:
            raise
        except (OSError, URLError, HTTPException, ValueError) as error:
            raise ConnectionError(
                f"cannot read {parts.scheme}://{parts.netloc}: {error}"
            ) from error


def read_limited(read: Callable[[int], bytes], deadline: float, bytes_max: int) -> bytes:
    data = bytearray()
    while piece := read(PIECE_BYTES):
        data += piece
        if len(data) > bytes_max:
            raise ConnectionError(f"the document has more than {bytes_max} bytes")
        if time.monotonic() > deadline:
            raise ConnectionError("the download takes too long")
    return bytes(data)
