"""Downloads from servers that refuse, fail, or answer slowly."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from barnabas.world.download import UrlDownloader
from barnabas.world.ports import DownloadRefused

SECRET = "hidden"


@contextmanager
def server(response: bytes, *, drips: bool = False) -> Iterator[str]:
    """Run a server for one connection. With `drips`, it repeats the last byte until the client closes."""
    stopped = Event()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(response)
            while drips and not stopped.wait(0.02):
                connection.sendall(response[-1:])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/token?key={SECRET}"
        finally:
            stopped.set()
            thread.join()


def get(url: str, timeout_s: float = 30.0) -> bytes:
    return UrlDownloader().get(url, timeout_s=timeout_s, bytes_max=100)


def status(code: int) -> bytes:
    return f"HTTP/1.1 {code} Text\r\nContent-Length: 0\r\n\r\n".encode()


def test_document_is_returned() -> None:
    with server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as url:
        assert get(url) == b"ok"


@pytest.mark.parametrize("code", [400, 401, 403, 404])
def test_refusal_is_final(code: int) -> None:
    with server(status(code)) as url, pytest.raises(DownloadRefused, match=f"{code}") as raised:
        get(url)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("code", [302, 408, 429, 500, 503])
def test_other_failures_may_end(code: int) -> None:
    with server(status(code)) as url, pytest.raises(ConnectionError) as raised:
        get(url)
    assert not isinstance(raised.value, DownloadRefused)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "start", [b"HTTP/1.1 200 OK\r\nX: y", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\nx"]
)
def test_slow_response_ends_at_the_deadline(start: bytes) -> None:
    """The timeout of the socket alone never ends it: the next byte always arrives in time."""
    began = time.monotonic()
    with server(start, drips=True) as url, pytest.raises(ConnectionError) as raised:
        UrlDownloader().get(url, timeout_s=0.5, bytes_max=1 << 20)
    assert time.monotonic() - began < 20
    assert "within 0.5 s" in str(raised.value)


def test_large_document_is_refused() -> None:
    body = b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n" + bytes(200)
    with server(body) as url, pytest.raises(ConnectionError, match="more than 100 bytes"):
        get(url)


@pytest.mark.parametrize(
    "url",
    [
        f"https://me:{SECRET}@127.0.0.1/token",
        f"https://127.0.0.1/to ken?key={SECRET}",
        f"https://[::1/{SECRET}",
        f"ftp://127.0.0.1/{SECRET}",
        f"http://127.0.0.1:1/token?key={SECRET}",
        "file:///a%00b",
        "file:///missing-directory/token",
    ],
)
def test_invalid_address_is_an_error_without_secrets(url: str) -> None:
    with pytest.raises(ConnectionError) as raised:
        get(url)
    assert SECRET not in str(raised.value)


def test_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    file.write_bytes(b"x")
    assert get(file.as_uri()) == b"x"
