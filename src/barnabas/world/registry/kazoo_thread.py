"""Kazoo's connection thread, one per session, and the path of its results to the event loop.

    event loop ── request ──► kazoo's queue ──► connection thread ◄──► ZooKeeper
        ▲                                            │
        └────────────── inbox, in order ◄────────────┘        responses, events and states

By default kazoo delivers responses and events on different threads. Their order is lost, and a session could read new
data before it receives the event of the change. Here the thread that reads both from the socket delivers them.

By default kazoo also opens a new session when one has expired. Here an ended session gets no further connection, and
its thread ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.retry import RetryFailedError

from barnabas.errors import reason

READ_BYTES = 1 << 16
WRITE_TIMEOUT_S = 5.0


class Inbox:
    """Calls from a thread to the event loop, in order. The loop is woken once for all waiting calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.lock = threading.Lock()
        self.waiting: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self.is_scheduled = False

    def put(self, callback: Callable[..., None], *arguments: object) -> None:
        with self.lock:
            self.waiting.append((callback, arguments))
            if self.is_scheduled:
                return
            self.is_scheduled = True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self.run_calls)

    def run_calls(self) -> None:
        with self.lock:
            waiting, self.waiting = self.waiting, []
            self.is_scheduled = False
        for callback, arguments in waiting:
            callback(*arguments)


class OneThreadHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Kazoo handler that opens connections, and runs every callback immediately on the connection thread."""

    # Kazoo calls back directly, without a queue, if its handler is not running.
    running = False

    def __init__(self, connect_timeout_s: float, tls: Callable[[], ssl.SSLContext] | None) -> None:
        """`connect_timeout_s` applies to the TCP connection, to each message of the TLS handshake, and to the first
        response of the server. `tls` is called for each connection, and must not raise.
        """
        super().__init__()
        self.connect_timeout_s = connect_timeout_s
        self.tls = tls
        self.sleep_func = self.sleep
        self.is_over = False  # the session has ended
        self.connect_error = ""
        """Reason why the last connection attempt failed; empty if it succeeded."""
        self.connection: BufferedSocket | None = None
        self.on_result: Callable[[Any], None] | None = None

    def start(self) -> None:
        """Do nothing: there are no worker threads."""

    def stop(self) -> None:
        """Do nothing: there are no worker threads."""

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def send_request(self, send: Callable[[], Any], on_result: Callable[[Any], None]) -> None:
        """Call `send`, which passes a request to kazoo. `on_result` gets the result on the connection thread.

        `on_result` is registered before the request is sent. If it were registered after kazoo returns, the event of a
        watch could arrive before the response that sets the watch, and would be lost.
        """
        self.on_result = on_result
        try:
            send()
        finally:
            self.on_result = None

    def async_result(self) -> Any:
        """Create a result object, and link the first one per request to `on_result`.

        Kazoo creates one or several per request. It returns the first one to the caller.
        """
        result = super().async_result()
        on_result, self.on_result = self.on_result, None
        if on_result is not None:
            result.rawlink(on_result)
        return result

    def create_connection(self, *arguments: Any, **options: Any) -> BufferedSocket:
        if self.is_over:
            raise ConnectionAbortedError("the session has ended")
        # Kazoo's own timeout for an unresponsive host is the session timeout.
        options["timeout"] = self.connect_timeout_s
        try:
            connected = super().create_connection(*arguments, **options)
            if self.tls is not None:
                connected = start_tls(connected, self.tls, options["hostname"])
        except OSError as error:
            self.connect_error = failure_text(error, is_tls=self.tls is not None)
            raise
        self.connect_error = ""
        self.connection = BufferedSocket(connected)
        return self.connection

    def failure(self) -> str:
        """Return why there is no connection, or an empty text if the reason is unknown."""
        if self.connect_error or self.connection is None or self.connection.has_received:
            return self.connect_error
        return self.connection.failure

    def sleep(self, seconds: float) -> None:
        """Sleep between two connection attempts. Raises RetryFailedError to stop them if the session has ended."""
        if self.is_over:
            raise RetryFailedError("the session has ended")
        time.sleep(seconds)

    def drop_connection(self) -> None:
        """Close the connection without closing the session, and open no further connection."""
        self.is_over = True
        if self.connection is not None:
            with contextlib.suppress(OSError):
                # Not the method of SSLSocket, which the connection thread may be using.
                socket.socket.shutdown(self.connection.socket, socket.SHUT_RDWR)

    def select(
        self,
        readers: Sequence[Any],
        writers: Sequence[Any],
        _: Sequence[Any],
        timeout: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait with poll. Kazoo's own method creates an epoll object per call, three times per request."""
        if writers and not readers:
            return [], list(writers), []  # BufferedSocket.send waits until the socket is writable
        sockets = [reader for reader in readers if isinstance(reader, BufferedSocket)]
        buffered = [each for each in sockets if each.pending()]
        if any(not each.has_received for each in sockets):
            # Kazoo's own timeout is the session timeout. A server that is starting may accept a connection and never
            # respond, and the rest of the session timeout is needed for the next attempt.
            timeout = self.connect_timeout_s
        poll = select.poll()
        for reader in readers:
            poll.register(reader, select.POLLIN)
        wait_ms = 0 if buffered else None if timeout is None else timeout * 1000
        ready = {number for number, _ in poll.poll(wait_ms)}
        return [each for each in readers if each.fileno() in ready or each in buffered], [], []


class BufferedSocket:
    """Socket with a read buffer, because kazoo reads a few bytes at a time.

    The buffer saves two system calls per response. After each call the thread would wait for the interpreter lock.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.bytes = b""
        self.position = 0
        self.has_received = False
        self.failure = ""
        """Reason why the connection was lost; empty if it was not."""
        self.is_tls = isinstance(connected, ssl.SSLSocket)
        self.fileno = connected.fileno
        self.setblocking = connected.setblocking
        self.close = connected.close

    def pending(self) -> int:
        """Return the number of buffered bytes. Kazoo calls it before it waits, because TLS sockets have a buffer."""
        buffered = len(self.bytes) - self.position
        if not buffered and isinstance(self.socket, ssl.SSLSocket):
            return self.socket.pending()
        return buffered

    def recv(self, size: int) -> bytes:
        if self.position == len(self.bytes):
            self.receive()
        chunk = self.bytes[self.position : self.position + size]
        self.position += len(chunk)
        return chunk

    def receive(self) -> None:
        """Fill the buffer. It stays empty at the end of the connection."""
        try:
            self.bytes, self.position = self.socket.recv(READ_BYTES), 0
        except ssl.SSLWantReadError:
            raise  # kazoo waits for the rest of the TLS record
        except OSError as error:
            self.failure = failure_text(error, is_tls=self.is_tls)
            raise
        if self.bytes:
            self.has_received = True
        else:
            self.failure = "the server closed the connection: it is not ready" + (
                "" if self.is_tls else ", or it requires TLS (zookeeper.ssl.client.enable=true)"
            )

    def send(self, data: bytes | memoryview) -> int:
        while True:
            try:
                return self.socket.send(data)
            except (BlockingIOError, ssl.SSLWantWriteError):
                poll = select.poll()
                poll.register(self.socket, select.POLLOUT)
                if not poll.poll(WRITE_TIMEOUT_S * 1000):
                    raise TimeoutError(f"cannot send for {WRITE_TIMEOUT_S:g} s") from None


def start_tls(
    connected: socket.socket, tls: Callable[[], ssl.SSLContext], host: str
) -> ssl.SSLSocket:
    """Do the TLS handshake. Closes the socket on failure."""
    try:
        return tls().wrap_socket(connected, server_hostname=host)
    except BaseException:
        connected.close()
        raise


def failure_text(error: OSError, *, is_tls: bool) -> str:
    """Return the reason of a failed connection, for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of the server is not accepted: {error.verify_message}"
    if is_tls and isinstance(error, ssl.SSLEOFError | ConnectionResetError):
        return "the server closed the connection: it does not accept TLS on this port, or refuses the certificate"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or reason(error)).lower().replace('_', ' ')}"
    return (error.strerror or reason(error)).lower()
