"""Kazoo's side of the registry door: one thread per session, and how what it learns reaches the event loop.

    event loop ── request ──► kazoo's queue ──► connection thread ◄──► ZooKeeper
        ▲                                            │
        └────────────── inbox, in order ◄────────────┘        answers, events and states, each where it came

Kazoo would hand answers to one thread and events to another, and so lose their order: a session could read new data
before it hears of the change. Here both are passed on by the thread that read them from the socket.

Kazoo would also open a new session in silence where one has expired. Here a session that is over gets no further
connection, and its thread ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
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
    """What a thread has to tell the loop, in its order. The loop is woken once for all that waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.lock = threading.Lock()
        self.waiting: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self.is_loop_called = False

    def put(self, tell: Callable[..., None], *arguments: object) -> None:
        with self.lock:
            self.waiting.append((tell, arguments))
            if self.is_loop_called:
                return
            self.is_loop_called = True
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody is left to listen
            self.loop.call_soon_threadsafe(self.empty)

    def empty(self) -> None:
        with self.lock:
            waiting, self.waiting = self.waiting, []
            self.is_loop_called = False
        for tell, arguments in waiting:
            tell(*arguments)


class OneThreadHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Runs every callback at once, on the connection thread; opens the connections; ends the thread."""

    # Kazoo calls back at once, and queues nothing, where its handler says it is not running.
    running = False

    def __init__(self, connect_timeout_s: float) -> None:
        """`connect_timeout_s` is for the connection to stand, and once more for the server's first word on it."""
        super().__init__()
        self.connect_timeout_s = connect_timeout_s
        self.sleep_func = self.sleep
        self.is_over = False
        self.refusal = ""
        """Why the last attempt to connect failed."""
        self.connection: BufferedSocket | None = None
        self.answered: Callable[[Any], None] | None = None

    def start(self) -> None:
        """No workers."""

    def stop(self) -> None:
        """No workers."""

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def ask(self, send: Callable[[], Any], answered: Callable[[Any], None]) -> None:
        """Tell `answered`, on the connection thread, what becomes of the request that `send` gives to kazoo.

        Known before it is sent. Whoever waited for kazoo to return first could stand still meanwhile, and hear of an
        event before the answer that set the watch for it: nobody would ever be told of that event."""
        self.answered = answered
        try:
            send()
        finally:
            self.answered = None

    def async_result(self) -> Any:
        """Kazoo makes one for a request, or several for one that it makes more of: the first is what it returns."""
        result = super().async_result()
        answered, self.answered = self.answered, None
        if answered is not None:
            result.rawlink(answered)
        return result

    def create_connection(self, *arguments: Any, **options: Any) -> BufferedSocket:
        if self.is_over:
            raise ConnectionAbortedError("the session is over")
        # Kazoo would wait for one silent host as long as the whole session lasts.
        options["timeout"] = self.connect_timeout_s
        try:
            connected = super().create_connection(*arguments, **options)
        except OSError as error:
            self.refusal = (error.strerror or reason(error)).lower()
            raise
        self.refusal = ""
        self.connection = BufferedSocket(connected)
        return self.connection

    def sleep(self, seconds: float) -> None:
        """Between two attempts to connect."""
        if self.is_over:
            raise RetryFailedError("the session is over")
        time.sleep(seconds)

    def drop_connection(self) -> None:
        """Without a goodbye, and without another connection."""
        self.is_over = True
        if self.connection is not None:
            with contextlib.suppress(OSError):
                self.connection.socket.shutdown(socket.SHUT_RDWR)

    def select(
        self,
        readers: Sequence[Any],
        writers: Sequence[Any],
        _: Sequence[Any],
        timeout: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Kazoo's own makes and throws away an epoll object each time, three times per request."""
        if writers and not readers:
            return [], list(writers), []  # a BufferedSocket waits for room itself
        at_hand = [reader for reader in readers if is_buffered(reader)]
        if any(isinstance(reader, BufferedSocket) and not reader.is_greeted for reader in readers):
            # Kazoo would wait as long as the session lasts. But a server that is just starting may take a connection
            # and forget it, and what a session has left then is needed for the next attempt.
            timeout = self.connect_timeout_s
        poll = select.poll()
        for reader in readers:
            poll.register(reader, select.POLLIN)
        wait_ms = 0 if at_hand else None if timeout is None else timeout * 1000
        ready = {number for number, _ in poll.poll(wait_ms)}
        return [each for each in readers if each.fileno() in ready or each in at_hand], [], []


class BufferedSocket:
    """Takes from the socket all there is, and gives kazoo the few bytes it asks for: two system calls less for each
    answer, and at each the thread would have to wait for its turn to run Python again."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.bytes = b""
        self.position = 0
        self.is_greeted = False
        self.fileno = connected.fileno
        self.setblocking = connected.setblocking
        self.close = connected.close

    def pending(self) -> int:
        """Kazoo asks before it waits for more, since TLS sockets have such a buffer, too."""
        return len(self.bytes) - self.position

    def recv(self, size: int) -> bytes:
        if not self.pending():
            self.bytes, self.position = self.socket.recv(READ_BYTES), 0
            self.is_greeted = True
        chunk = self.bytes[self.position : self.position + size]
        self.position += len(chunk)
        return chunk

    def send(self, data: bytes | memoryview) -> int:
        while True:
            try:
                return self.socket.send(data)
            except BlockingIOError:
                poll = select.poll()
                poll.register(self.socket, select.POLLOUT)
                if not poll.poll(WRITE_TIMEOUT_S * 1000):
                    raise TimeoutError("the server takes no more") from None


def is_buffered(reader: Any) -> bool:
    return isinstance(reader, BufferedSocket) and reader.pending() > 0
