"""A connection from one broker to another, over the `Network` interface of world/ports.py.

    connection = await BrokerConnection.open(network, host, port, client_id="broker-1-controller", timeout_s=10)
    response = await connection.exchange(LeaderAndIsrRequest(...), LeaderAndIsrResponse, timeout_s=30)

There is no ApiVersions exchange: the brokers of a cluster support the same versions. A timed-out exchange closes the
connection. A broker responds in request order, so the next responses would be late too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, runtime_checkable

from barnabas.client.core import ClientProtocol, frame_size
from barnabas.errors import RemoteWireError
from barnabas.wire.apis import APIS
from barnabas.wire.codec import Message
from barnabas.world.ports import Network, Stream

R = TypeVar("R", bound=Message)


@runtime_checkable
class LoginNetwork(Protocol):
    """A network whose connections need a login before the first request."""

    async def log_in(self, connection: BrokerConnection) -> None:
        """Raises ConnectionError if the other side refuses."""


BUFFER_BYTES = 64 * 1024
SIZE_BYTES = 4
SUPPORTED_VERSIONS: dict[int, range] = {api.key: api.versions for api in APIS.values()}


class ExchangeInterrupted(Exception):
    """`BrokerConnection.interrupt` ended this exchange.

    Not a ConnectionError: nothing failed, and error handlers for connections must not catch it.
    """


class BrokerConnection:
    """The client end of a stream. Implements `Receiver` of world/ports.py.

    `reason` is why the connection closed, or None while it is open. `data[:end]` is the received part of a response.
    """

    def __init__(self, client_id: str) -> None:
        self.protocol = ClientProtocol(client_id)
        self.protocol.versions = SUPPORTED_VERSIONS
        self.stream: Stream | None = None
        self.waiting: dict[int, asyncio.Future[Message]] = {}
        self.data = bytearray(BUFFER_BYTES)
        self.end = 0
        self.reason: str | None = None
        self.renewal_at: float | None = None
        """Time of the event loop after which the next exchange logs in again; None: the login does not expire."""
        self.renew: Callable[[], Awaitable[float]] | None = None
        self.renewing = asyncio.Lock()

    @classmethod
    async def open(
        cls, network: Network, host: str, port: int, *, client_id: str, timeout_s: float
    ) -> BrokerConnection:
        """Connect and log in. Raises ConnectionError if that fails or takes longer than `timeout_s`."""
        connection = cls(client_id)

        def accept(stream: Stream) -> BrokerConnection:
            connection.stream = stream
            return connection

        try:
            async with asyncio.timeout(timeout_s):
                await network.connect(host, port, accept)
                if isinstance(network, LoginNetwork):
                    await network.log_in(connection)
        except TimeoutError:
            connection.close("no login in time")
            raise ConnectionError(f"{host}:{port}: no connection within {timeout_s:g} s") from None
        except BaseException:
            connection.close("login failed")
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self.reason is None

    @property
    def is_receiving(self) -> bool:
        """Whether part of a response has arrived."""
        return self.end > 0

    async def exchange(
        self,
        request: Message,
        response: type[R],
        *,
        timeout_s: float,
        max_version: int | None = None,
        body: bytes | None = None,
        is_login: bool = False,
    ) -> R:
        """Send a request and wait for its response. Requests of a login have `is_login`; others log in again if due.

        Raises ConnectionError if the connection is closed or fails, TimeoutError after `timeout_s`, and
        ExchangeInterrupted. `body` is the already encoded request, in its newest version.
        """
        loop = asyncio.get_running_loop()
        if self.renewal_at is not None and not is_login and loop.time() >= self.renewal_at:
            await self.renew_login()
        if self.reason is not None or self.stream is None:
            raise ConnectionError(self.reason or "not connected")
        encoded = self.protocol.encode_request(
            request, response, max_version=max_version, body=body
        )
        future: asyncio.Future[Message] = loop.create_future()
        self.waiting[encoded.correlation_id] = future
        self.stream.send([encoded.data])
        # asyncio.timeout costs ten times as much, and a follower sends a thousand requests per second.
        timer = loop.call_later(timeout_s, fail_with_timeout, future, timeout_s)
        try:
            answer = await future
        except BaseException:
            self.close("request timed out or was cancelled")
            raise
        finally:
            timer.cancel()
        assert isinstance(answer, response)
        return answer

    def renew_login_at(self, time_s: float, renew: Callable[[], Awaitable[float]]) -> None:
        """Call `renew` before the first exchange after a time. It returns the seconds until the next call; 0: never."""
        self.renewal_at, self.renew = time_s, renew

    async def renew_login(self) -> None:
        """Log in again. Other exchanges wait meanwhile: the broker accepts only the messages of the login."""
        loop = asyncio.get_running_loop()
        async with self.renewing:
            if self.renew is None or self.renewal_at is None or loop.time() < self.renewal_at:
                return
            try:
                seconds = await self.renew()
            except BaseException:
                self.close("login failed")
                raise
            self.renewal_at = loop.time() + seconds if seconds else None

    def interrupt(self, reason: str) -> None:
        """End all exchanges in flight with ExchangeInterrupted, and close the connection.

        Does nothing if no exchange is in flight, or if a response has begun to arrive.
        """
        if not self.waiting or self.is_receiving:
            return
        self.fail_waiting(ExchangeInterrupted, reason)
        self.close(reason)

    def close(self, reason: str = "closed") -> None:
        if self.stream is not None:
            self.stream.close(reason)

    # ---- Receiver

    def buffer(self) -> memoryview:
        return memoryview(self.data)[self.end :]

    def received(self, size: int) -> None:
        self.end += size
        start = 0
        try:
            while self.end - start >= SIZE_BYTES:
                total = SIZE_BYTES + frame_size(self.data[start : start + SIZE_BYTES])
                if self.end - start < total:
                    self.compact_buffer(start, total)
                    return
                # The records of a response must stay valid when the next response arrives. A response that fills the
                # buffer keeps it, and the connection gets a new one. Any other response is copied.
                frame = memoryview(self.data)[start + SIZE_BYTES : start + total]
                if total == len(self.data):
                    self.data, self.end = bytearray(BUFFER_BYTES), 0
                else:
                    frame = memoryview(bytes(frame))
                    start += total
                self.handle_response(frame)
        except RemoteWireError as error:
            self.close(str(error))
            return
        self.compact_buffer(start, BUFFER_BYTES)

    def compact_buffer(self, start: int, min_capacity: int) -> None:
        """Move the partial frame at `start` to the beginning of a buffer of `min_capacity`, at least BUFFER_BYTES."""
        capacity = max(min_capacity, BUFFER_BYTES)
        if not start and capacity == len(self.data):
            return
        rest = self.data[start : self.end]
        if capacity != len(self.data):
            self.data = bytearray(capacity)
        self.data[: len(rest)] = rest
        self.end = len(rest)

    def handle_response(self, frame: memoryview) -> None:
        decoded = self.protocol.decode_response(frame)
        future = self.waiting.pop(decoded.correlation_id, None)
        if future is not None and not future.done():
            future.set_result(decoded.message)

    def drained(self) -> None:
        """Do nothing: no caller waits for the send buffer to empty."""

    def closed(self, reason: str) -> None:
        self.reason = reason
        self.fail_waiting(ConnectionError, reason)

    def fail_waiting(self, error: type[Exception], reason: str) -> None:
        waiting, self.waiting = self.waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error(reason))
                future.exception()  # else asyncio logs it as never retrieved if the waiter was cancelled


def fail_with_timeout(future: asyncio.Future[Message], timeout_s: float) -> None:
    if not future.done():
        future.set_exception(TimeoutError(f"no response within {timeout_s:g} s"))
