"""Logins on listeners with SASL: serves the frames of a connection until its client has logged in.

    ApiVersions ─► SaslHandshake ─► SaslAuthenticate … ─► logged in: frames go to the router
                        │                    │
                        └── v0: frames without a header          any failure: an error after a delay, then closed

A connection that has not logged in gets little: small frames, a few of them, LOGIN_SECONDS_MAX of time, and a memory
budget that it shares only with other connections in this state. Every failure costs a timer, no work of the loop.

A login can expire (`connections.max.reauth.ms`, the expiry of a token). The client then sends SaslHandshake again on
the same connection, with the same mechanism and user. ExpiringSession serves the frames of such a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Any, Protocol

from barnabas.broker.connection import (
    API_KEY,
    CloseConnection,
    Connection,
    EncodedResponse,
    Serve,
    ServeResult,
)
from barnabas.broker.memory_budget import MemoryBudget
from barnabas.broker.security.exchanges import Exchange, LoggedIn, LoginFailed
from barnabas.broker.security.login_settings import ListenerLogins
from barnabas.broker.security.session import Session
from barnabas.errors import ErrorCode, RemoteWireError
from barnabas.log_rate_limiter import LogRateLimiter
from barnabas.wire import codec
from barnabas.wire.apis import ApiKey, api_name
from barnabas.wire.headers import RequestHeader, decode_request_header, encode_response_header
from barnabas.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

SIZE = Struct(">i")
LOGIN_SECONDS_MAX = 30.0
FRAMES_MAX = 32
"""Frames of a connection before it has logged in. A login takes at most six."""
LINGER_SECONDS = 0.05
"""Time from the response to a failed login until the connection is closed. A client that finds both at once, such as
kafka-python, does not read the response."""
REAUTH_SECONDS_MIN = 1.0
"""A client may log in again once in this time, as in Kafka."""


class LoginHost(Protocol):
    """Parts of the broker that a login uses."""

    def find_settings(self, listener: str) -> ListenerLogins:
        """Return the current settings of a listener."""

    def create_exchange(
        self, settings: ListenerLogins, listener: str, mechanism: str
    ) -> Exchange: ...

    def now_ms(self) -> int: ...

    def login_succeeded(self, login: Login) -> None: ...

    def login_failed(self, login: Login, failure: LoginFailed) -> None: ...

    def session_expired(self, connection: Connection) -> None: ...


class ExpiringSession:
    """Serves the frames of a connection whose login expires."""

    __slots__ = ("find_serve", "host", "session")

    def __init__(self, host: LoginHost, session: Session, find_serve: Callable[[], Serve]) -> None:
        self.host = host
        self.session = session
        self.find_serve = find_serve

    def serve(self, frame: memoryview, connection: Connection) -> ServeResult:
        now, session = connection.loop.time(), self.session
        if len(frame) >= API_KEY.size and API_KEY.unpack_from(frame)[0] == ApiKey.SASL_HANDSHAKE:
            if now - session.renewed_at >= REAUTH_SECONDS_MIN:
                login = Login(self.host, connection, self.find_serve, session)
                connection.serve = login.serve
                return login.serve(frame, connection)
        elif session.expires_at is not None and now > session.expires_at:
            self.host.session_expired(connection)
            raise CloseConnection(
                "the login has expired; the client did not log in again in time "
                "(connections.max.reauth.ms)"
            )
        return self.find_serve()(frame, connection)


class Login:
    """The login of one connection. With `earlier`, the client logs in again."""

    __slots__ = (
        *("authenticate_version", "began_at", "connection", "exchange", "find_serve", "frames"),
        *("earlier", "host", "is_raw", "mechanism", "settings", "shared_memory"),
    )

    def __init__(
        self,
        host: LoginHost,
        connection: Connection,
        find_serve: Callable[[], Serve],
        earlier: Session | None = None,
    ) -> None:
        self.host = host
        self.connection = connection
        self.find_serve = find_serve
        """Returns the function that serves the frames after the login."""
        self.earlier = earlier
        self.settings = host.find_settings(connection.listener_name)
        self.began_at = connection.loop.time()
        self.mechanism = ""
        self.exchange: Exchange | None = None
        self.is_raw = False
        """Whether messages have no header: after SaslHandshake v0."""
        self.authenticate_version = 0
        self.frames = 0
        self.shared_memory: tuple[MemoryBudget, int] | None = None

    @property
    def is_again(self) -> bool:
        return self.earlier is not None

    @property
    def refusal(self) -> LoginFailed | None:
        """Why the client cannot log in, if it knows but has not confirmed it yet."""
        return None if self.exchange is None else self.exchange.failure

    def limit(self, memory: MemoryBudget, log_limiter: LogRateLimiter) -> None:
        """Use another memory budget, small frames and few log lines until the login is complete."""
        connection = self.connection
        connection.close_limiter = log_limiter
        self.shared_memory = (connection.memory, connection.frame_bytes_max)
        connection.memory = memory
        connection.frame_bytes_max = min(self.settings.frame_bytes_max, connection.frame_bytes_max)

    def serve(self, frame: memoryview, connection: Connection) -> ServeResult:
        self.frames += 1
        if self.frames > FRAMES_MAX:
            return self.fail(LoginFailed(f"more than {FRAMES_MAX} requests before the login"))
        if self.exchange is not None and self.is_raw:
            connection.api = ApiKey.SASL_AUTHENTICATE
            return self.authenticate_raw(bytes(frame))
        try:
            header, at = decode_request_header(frame)
            if not header.is_served and header.api_key != ApiKey.API_VERSIONS:
                return self.fail(unexpected_request(header))
            connection.api = header.api_key
            if self.exchange is not None:
                return self.serve_authenticate(frame, header, at)
            if header.api_key == ApiKey.API_VERSIONS and not self.is_again:
                return self.find_serve()(frame, connection)
            if header.api_key == ApiKey.SASL_HANDSHAKE:
                handshake = codec.decode(SaslHandshakeRequest, header.api_version, frame, at)
                return self.start(header, handshake.mechanism)
        except RemoteWireError as error:
            return self.fail(LoginFailed(f"invalid request: {error}"))
        return self.fail(unexpected_request(header))

    def start(self, header: RequestHeader, mechanism: str) -> ServeResult:
        """Answer SaslHandshake."""
        enabled = self.settings.mechanisms
        if mechanism not in enabled:
            response = SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=enabled
            )
            why = f"UNSUPPORTED_SASL_MECHANISM: the listener has {', '.join(enabled)}"
            self.mechanism = mechanism
            return self.fail(LoginFailed(why), encode_response(header, response))
        self.mechanism = mechanism
        self.is_raw = header.api_version == 0
        self.exchange = self.host.create_exchange(
            self.settings, self.connection.listener_name, mechanism
        )
        return encode_response(header, SaslHandshakeResponse(mechanisms=enabled))

    def serve_authenticate(self, frame: memoryview, header: RequestHeader, at: int) -> ServeResult:
        if header.api_key != ApiKey.SASL_AUTHENTICATE:
            return self.fail(unexpected_request(header))
        request = codec.decode(SaslAuthenticateRequest, header.api_version, frame, at)
        self.authenticate_version = header.api_version
        return self.authenticate(header, bytes(request.auth_bytes))

    async def authenticate(self, header: RequestHeader, message: bytes) -> EncodedResponse:
        try:
            reply, session = await self.receive(message)
        except LoginFailed as failure:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=f"Authentication failed during {'re-' * self.is_again}authentication "
                f"due to invalid credentials with SASL mechanism {self.mechanism}",
            )
            return await self.fail(failure, encode_response(header, response))
        lifetime_ms = 0
        if session is not None and session.expires_at is not None:
            lifetime_ms = max(int(1000 * (session.expires_at - self.connection.loop.time())), 0)
        return encode_response(
            header, SaslAuthenticateResponse(auth_bytes=reply, session_lifetime_ms=lifetime_ms)
        )

    async def authenticate_raw(self, message: bytes) -> EncodedResponse:
        try:
            reply, _ = await self.receive(message)
        except LoginFailed as failure:
            return await self.fail(failure)
        return [SIZE.pack(len(reply)) + reply]

    async def receive(self, message: bytes) -> tuple[bytes, Session | None]:
        """Pass a message to the mechanism. Returns the reply, and the session if the login is complete."""
        assert self.exchange is not None
        if self.earlier is not None and self.mechanism != self.earlier.mechanism:
            raise LoginFailed(f"the earlier login has used {self.earlier.mechanism}")
        step = await self.exchange.receive(message)
        if step.login is None:
            return step.reply, None
        if self.earlier is not None and step.login.principal != self.earlier.principal:
            raise LoginFailed(
                f"the earlier login was that of {self.earlier.principal}", step.login.principal.name
            )
        return step.reply, self.complete(step.login)

    def complete(self, login: LoggedIn) -> Session:
        connection = self.connection
        session = Session(self.mechanism, login.principal, is_token=login.is_token)
        lifetime_ms = session_lifetime_ms(
            self.settings.reauth_ms[self.mechanism], login.expires_ms, self.host.now_ms()
        )
        if lifetime_ms is None:
            connection.serve = self.find_serve()
        else:
            now = connection.loop.time()
            session.expires_at = now + lifetime_ms / 1000
            session.renewed_at = now if self.is_again else 0.0
            connection.serve = ExpiringSession(self.host, session, self.find_serve).serve
        if self.shared_memory is not None:
            connection.release_memory()
            connection.memory, connection.frame_bytes_max = self.shared_memory
            connection.close_limiter = None
        connection.principal = login.principal
        connection.session = session
        self.host.login_succeeded(self)
        return session

    async def fail(self, failure: LoginFailed, response: EncodedResponse = None) -> EncodedResponse:
        """Wait, send the response and close the connection. The delay slows attempts to guess a password."""
        connection = self.connection
        connection.serve = ignore_frame
        # A client may ignore that its token was refused. The log has the reason of the refusal.
        self.host.login_failed(self, self.refusal or failure)
        await asyncio.sleep(self.settings.failure_delay_s)
        if response:
            connection.stream.send(response)
            await asyncio.sleep(LINGER_SECONDS)
        connection.stream.close("login failed")
        return None

    def is_late(self, now: float) -> bool:
        return now - self.began_at > LOGIN_SECONDS_MAX


def ignore_frame(frame: memoryview, connection: Connection) -> ServeResult:
    """Serve no frame: the connection is about to be closed."""
    return None


def session_lifetime_ms(reauth_ms: int, expires_ms: int | None, now_ms: int) -> int | None:
    """Return the time until the client must log in again, or None if it need not.

    >>> session_lifetime_ms(0, None, 5), session_lifetime_ms(100, 50, 20), session_lifetime_ms(0, 10, 20)
    (None, 30, 0)
    """
    limits = []
    if reauth_ms > 0:
        limits.append(reauth_ms)
    if expires_ms is not None:
        limits.append(max(expires_ms - now_ms, 0))
    return min(limits, default=None)


def unexpected_request(header: RequestHeader) -> LoginFailed:
    name = f"{api_name(header.api_key)} v{header.api_version}"
    return LoginFailed(f"ILLEGAL_SASL_STATE: unexpected {name} request before the login")


def encode_response(header: RequestHeader, response: Any) -> EncodedResponse:
    body = codec.encode(response, header.api_version)
    head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    return [SIZE.pack(len(head) + len(body)) + head + body]
