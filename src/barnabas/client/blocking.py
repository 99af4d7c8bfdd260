"""Connections of the blocking client: one socket per broker. No other module of `client/` uses `socket` or `time`.

A connection that fails or times out is closed, because a response may have been read only in part. Methods raise
ApiError: REQUEST_TIMED_OUT if no response arrives in time, NETWORK_EXCEPTION for any other failure of the connection.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections.abc import Iterable
from typing import Self, TypeVar

from barnabas.client.core import (
    API_VERSIONS_REQUEST,
    ClientProtocol,
    DecodedResponse,
    frame_size,
    raise_if,
)
from barnabas.client.login import PLAINTEXT_CONNECTIONS, ConnectionSecurity, log_in
from barnabas.client.tls_errors import is_fatal, tls_failure
from barnabas.errors import ApiError, ErrorCode, RemoteWireError, TlsFailed, reason
from barnabas.wire.codec import Message
from barnabas.wire.messages.api_versions import ApiVersionsResponse

R = TypeVar("R", bound=Message)

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 30.0
LOGIN_AGAIN_AFTER = 0.85
"""Part of a login's lifetime after which the client logs in again, as in Kafka's clients."""


class Deadline:
    """The point in time `seconds` from now, on the monotonic clock."""

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
    """One socket to one broker. `send` and `receive` allow several requests in flight; `exchange` is both in one.

    `unclaimed` holds responses that were read while waiting for another one, by correlation id. `login_expiry` is when
    the client must log in again, or None.
    """

    def __init__(
        self,
        stream: socket.socket,
        address: str,
        client_id: str,
        security: ConnectionSecurity = PLAINTEXT_CONNECTIONS,
    ) -> None:
        self.stream = stream
        self.address = address
        self.security = security
        self.protocol = ClientProtocol(client_id)
        self.unclaimed: dict[int, Message] = {}
        self.is_open = True
        self.is_proven = False
        self.login_expiry: Deadline | None = None

    @classmethod
    def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_s: float = CONNECT_TIMEOUT_S,
        security: ConnectionSecurity = PLAINTEXT_CONNECTIONS,
    ) -> Self:
        """Connect, exchange ApiVersions and log in. Raises ApiError, and ConfigError for an unreadable key or token."""
        stream = open_socket(host, port, security, timeout_s)
        connection = cls(stream, f"{host}:{port}", client_id, security)
        try:
            connection.exchange_versions(timeout_s)
            connection.log_in(timeout_s)
        except BaseException:
            connection.close()
            raise
        return connection

    def exchange_versions(self, timeout_s: float) -> None:
        """Learn which versions the broker supports."""
        versions = self.exchange(API_VERSIONS_REQUEST, ApiVersionsResponse, timeout_s=timeout_s)
        if versions.error_code == ErrorCode.UNSUPPORTED_VERSION:
            versions = self.exchange(
                API_VERSIONS_REQUEST, ApiVersionsResponse, timeout_s=timeout_s, max_version=0
            )
        raise_if(versions.error_code, f"{self.address} rejected ApiVersions")
        self.protocol.set_versions(versions)

    def log_in(self, timeout_s: float) -> None:
        """Log in, if the security settings have a login. If that fails, close the connection."""
        login, self.login_expiry = self.security.settings.login, None
        if login is None:
            return
        try:
            lifetime_ms = log_in(self, login, timeout_s)
        except BaseException:
            self.close()
            raise
        self.is_proven = True
        if lifetime_ms > 0:
            self.login_expiry = Deadline(lifetime_ms / 1000 * LOGIN_AGAIN_AFTER)

    def supports(self, request: type[Message]) -> bool:
        return request.API_KEY in self.protocol.versions

    def exchange(
        self,
        request: Message,
        response: type[R],
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        max_version: int | None = None,
    ) -> R:
        """Send a request and wait for its response."""
        correlation_id = self.send(request, response, max_version=max_version, timeout_s=timeout_s)
        return self.receive(correlation_id, response, timeout_s=timeout_s)

    def send(
        self,
        request: Message,
        response: type[Message] | None,
        *,
        max_version: int | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> int:
        """Send a request. Returns its correlation id, for `receive`. Logs in again first, if it is time."""
        if self.login_expiry is not None and self.login_expiry.passed:
            self.log_in(timeout_s)
        encoded = self.protocol.encode_request(request, response, max_version=max_version)
        try:
            self.stream.settimeout(timeout_s)
            self.stream.sendall(encoded.data)
        except OSError as error:
            self.close()
            raise network_error(self.address, error) from None
        return encoded.correlation_id

    def receive(
        self, correlation_id: int, response: type[R], *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> R:
        """Wait for the response to a request that was sent with `send`."""
        deadline = Deadline(timeout_s)
        while correlation_id not in self.unclaimed:
            received_id, message = self.read_response(deadline)
            self.unclaimed[received_id] = message
        answer = self.unclaimed.pop(correlation_id)
        assert isinstance(answer, response)
        self.is_proven = self.is_proven or response is not ApiVersionsResponse
        return answer

    def read_response(self, deadline: Deadline) -> DecodedResponse:
        try:
            size = frame_size(self.read_exactly(4, deadline))
            return self.protocol.decode_response(memoryview(self.read_exactly(size, deadline)))
        except TimeoutError:
            self.close()
            why = f"{self.address} did not respond in time"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, why) from None
        except (OSError, RemoteWireError) as error:
            self.close()
            raise self.explain(error) from None

    def explain(self, error: OSError | RemoteWireError) -> ApiError:
        """Return the error with the next step, if the listener may need other security settings."""
        failure = network_error(self.address, error)
        if self.is_proven or isinstance(failure, TlsFailed):
            return failure
        protocol = self.security.settings.protocol.name
        hint = f"the listener may need another security.protocol than {protocol}"
        return ApiError(failure.code, f"{failure.message}; {hint}")

    def read_exactly(self, size: int, deadline: Deadline) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        at = 0
        while at < size:
            # A timeout of zero makes the socket non-blocking: recv would fail even if data is available.
            self.stream.settimeout(max(deadline.left_s(), 0.001))
            count = self.stream.recv_into(view[at:])
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            at += count
        return data

    def close(self) -> None:
        self.is_open = False
        self.stream.close()


def open_socket(
    host: str, port: int, security: ConnectionSecurity, timeout_s: float
) -> socket.socket:
    """Connect, with a TLS handshake if the settings require it. Raises ApiError and ConfigError."""
    address = f"{host}:{port}"
    context = security.tls_context()
    deadline = Deadline(timeout_s)
    try:
        stream = socket.create_connection((host, port), timeout=timeout_s)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, UnicodeError, OverflowError) as error:
        raise network_error(address, error) from None
    if context is None:
        return stream
    try:
        stream.settimeout(max(deadline.left_s(), 0.001))
        return context.wrap_socket(stream, server_hostname=host)
    except (OSError, ValueError) as error:
        stream.close()
        raise tls_failure(address, error) from None


def wait_readable(
    connections: Iterable[BlockingConnection], timeout_s: float
) -> list[BlockingConnection]:
    """Wait until at least one connection has data to read, or the timeout expires. Returns those connections."""
    buffered = []
    with selectors.DefaultSelector() as selector:
        for connection in dict.fromkeys(connections):
            selector.register(connection.stream, selectors.EVENT_READ, connection)
            if has_buffered_data(connection.stream):
                buffered.append(connection)
        ready = [key.data for key, _ in selector.select(0.0 if buffered else timeout_s)]
    return list(dict.fromkeys([*buffered, *ready]))


def has_buffered_data(stream: socket.socket) -> bool:
    """Whether data was received and decrypted already, so that the socket does not become readable."""
    return isinstance(stream, ssl.SSLSocket) and stream.pending() > 0


def network_error(address: str, error: Exception) -> ApiError:
    if isinstance(error, ssl.SSLError) and is_fatal(error):
        return tls_failure(address, error)
    why = getattr(error, "strerror", None) or reason(error)
    return ApiError(ErrorCode.NETWORK_EXCEPTION, f"{address}: {why}")
