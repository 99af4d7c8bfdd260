"""Plain sockets: the door through which the blocking client reaches brokers. Here, and nowhere else in `client/`,
stand `socket` and `time`.

A connection that timed out or broke is closed at once: a late answer would be taken for that of the next request.
Foreign errors end here. What comes through is ApiError: NETWORK_EXCEPTION for a connection that is gone,
REQUEST_TIMED_OUT for an answer that did not come.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterable
from typing import Self, TypeVar

from barnabas.client.core import HELLO, Conversation, Incoming, Outgoing, frame_size, raise_if
from barnabas.errors import ApiError, ErrorCode, RemoteWireError, reason
from barnabas.wire.codec import Message
from barnabas.wire.messages.api_versions import ApiVersionsResponse

R = TypeVar("R", bound=Message)

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 30.0


class Deadline:
    """A moment by which something must be done."""

    def __init__(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds

    def left_s(self) -> float:
        return max(0.0, self.at - time.monotonic())

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self.at


def pause(seconds: float) -> None:
    time.sleep(seconds)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class BlockingConnection:
    """One socket to one broker. Requests may be sent ahead with `begin`; `exchange` is both halves in one."""

    def __init__(self, stream: socket.socket, address: str, client_id: str) -> None:
        self.stream = stream
        self.address = address
        self.conversation = Conversation(client_id)
        self.early: dict[int, Message] = {}
        self.is_open = True

    @classmethod
    def open(
        cls, host: str, port: int, *, client_id: str, timeout_s: float = CONNECT_TIMEOUT_S
    ) -> Self:
        """Connect and learn what the broker speaks."""
        address = f"{host}:{port}"
        try:
            stream = socket.create_connection((host, port), timeout=timeout_s)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, UnicodeError, OverflowError) as error:
            raise lost(address, error) from None
        connection = cls(stream, address, client_id)
        versions = connection.exchange(HELLO, ApiVersionsResponse, timeout_s=timeout_s)
        if versions.error_code == ErrorCode.UNSUPPORTED_VERSION:
            versions = connection.exchange(
                HELLO, ApiVersionsResponse, timeout_s=timeout_s, at_most=0
            )
        if versions.error_code:
            connection.close()
            raise_if(versions.error_code, f"{address} refused ApiVersions")
        connection.conversation.learn(versions)
        return connection

    def supports(self, request: type[Message]) -> bool:
        return request.API_KEY in self.conversation.versions

    def exchange(
        self,
        request: Message,
        response: type[R],
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        at_most: int | None = None,
    ) -> R:
        correlation_id = self.begin(request, response, at_most=at_most, timeout_s=timeout_s)
        return self.finish(correlation_id, response, timeout_s=timeout_s)

    def begin(
        self,
        request: Message,
        response: type[Message] | None,
        *,
        at_most: int | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> int:
        """Send; the correlation id is the ticket for `finish`."""
        outgoing: Outgoing = self.conversation.request(request, response, at_most=at_most)
        try:
            self.stream.settimeout(timeout_s)
            self.stream.sendall(outgoing.data)
        except OSError as error:
            self.close()
            raise lost(self.address, error) from None
        return outgoing.correlation_id

    def finish(
        self, correlation_id: int, response: type[R], *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> R:
        deadline = Deadline(timeout_s)
        while correlation_id not in self.early:
            found, message = self.read_response(deadline)
            self.early[found] = message
        answer = self.early.pop(correlation_id)
        assert isinstance(answer, response)
        return answer

    def read_response(self, deadline: Deadline) -> Incoming:
        try:
            size = frame_size(self.read_exactly(4, deadline))
            return self.conversation.response(memoryview(self.read_exactly(size, deadline)))
        except RemoteWireError as error:
            self.close()
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"{self.address}: {error}") from None
        except TimeoutError:
            self.close()
            why = f"{self.address} did not answer in time"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, why) from None
        except OSError as error:
            self.close()
            raise lost(self.address, error) from None

    def read_exactly(self, size: int, deadline: Deadline) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        at = 0
        while at < size:
            # A timeout of zero would mean "do not wait" and fail even if bytes are there.
            self.stream.settimeout(max(deadline.left_s(), 0.001))
            count = self.stream.recv_into(view[at:])
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            at += count
        return data

    def close(self) -> None:
        self.is_open = False
        self.stream.close()


def wait_any(
    connections: Iterable[BlockingConnection], timeout_s: float
) -> list[BlockingConnection]:
    """Those of the connections on which an answer has begun to arrive, once there is one or the time is over."""
    with selectors.DefaultSelector() as selector:
        for connection in dict.fromkeys(connections):
            selector.register(connection.stream, selectors.EVENT_READ, connection)
        return [key.data for key, _ in selector.select(timeout_s)]


def lost(address: str, error: Exception) -> ApiError:
    why = getattr(error, "strerror", None) or reason(error)
    return ApiError(ErrorCode.NETWORK_EXCEPTION, f"{address}: {why}")
