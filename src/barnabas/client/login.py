"""Security of the blocking client's connections: the TLS context that they share, and their SASL login.

    SaslHandshake v1 ─► SaslAuthenticate ─► … ─► lifetime of the login, or an error

A login that a broker refuses is not retried: the next attempt would fail too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.client.core import error_of
from barnabas.errors import ApiError, ErrorCode, TlsFailed
from barnabas.security.client_settings import PLAINTEXT, ClientSecurity, Login
from barnabas.security.sasl.mechanism import OAUTHBEARER, SaslFailed
from barnabas.wire.codec import Message
from barnabas.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from ssl import SSLContext

R = TypeVar("R", bound=Message)

REFUSALS = frozenset(
    {
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.ILLEGAL_SASL_STATE,
    }
)


class ConnectionSecurity:
    """The security of connections to one cluster. Reads the files of TLS for the first connection only."""

    def __init__(self, settings: ClientSecurity) -> None:
        self.settings = settings
        self.context: SSLContext | None = None

    def tls_context(self) -> SSLContext | None:
        """Return the context, or None for connections without TLS. Raises ConfigError."""
        if self.context is None and self.settings.protocol.has_tls:
            from barnabas.security.client_sources import create_tls_context

            self.context = create_tls_context(self.settings)
        return self.context


PLAINTEXT_CONNECTIONS = ConnectionSecurity(PLAINTEXT)


class LoginConnection(Protocol):
    """The parts of a BlockingConnection that a login uses."""

    @property
    def address(self) -> str: ...

    def exchange(self, request: Message, response: type[R], *, timeout_s: float) -> R: ...


def is_refusal(error: ApiError) -> bool:
    """Whether a broker, or its certificate, was refused: another attempt would fail too."""
    return isinstance(error, TlsFailed) or error.code in REFUSALS


def log_in(connection: LoginConnection, login: Login, timeout_s: float) -> int:
    """Log in. Returns the milliseconds until the client must log in again, or 0. Raises ApiError and ConfigError."""
    from barnabas.security.client_sources import create_sasl_client, discard_token

    address = connection.address
    handshake = connection.exchange(
        SaslHandshakeRequest(mechanism=login.mechanism), SaslHandshakeResponse, timeout_s=timeout_s
    )
    if handshake.error_code:
        raise handshake_error(address, login, handshake)
    try:
        client = create_sasl_client(login)
        message: bytes | None = client.start()
        lifetime_ms = 0
        while message is not None:
            answer = connection.exchange(
                SaslAuthenticateRequest(auth_bytes=message),
                SaslAuthenticateResponse,
                timeout_s=timeout_s,
            )
            if answer.error_code:
                discard_token(login)
                raise login_error(address, login, answer)
            lifetime_ms = answer.session_lifetime_ms
            message = client.respond(bytes(answer.auth_bytes))
    except SaslFailed as error:
        why = f"login at {address} with {login.mechanism} failed: {error}"
        raise ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, why) from None
    except ConnectionError as error:
        raise ApiError(
            ErrorCode.NETWORK_EXCEPTION, f"cannot log in at {address}: {error}"
        ) from None
    return lifetime_ms


def handshake_error(address: str, login: Login, answer: SaslHandshakeResponse) -> ApiError:
    error = error_of(answer.error_code)
    assert error is not None
    if error.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        enabled = ", ".join(answer.mechanisms) or "none"
        why = (
            f"{address} does not accept {login.mechanism}; set sasl.mechanism to one of: {enabled}"
        )
        return ApiError(error.code, why)
    if error.code is ErrorCode.ILLEGAL_SASL_STATE:
        why = f"{address} does not expect a login; use security.protocol=PLAINTEXT or SSL"
        return ApiError(error.code, why)
    return ApiError(error.code, f"{address} rejected the login")


def login_error(address: str, login: Login, answer: SaslAuthenticateResponse) -> ApiError:
    error = error_of(answer.error_code)
    assert error is not None
    if login.mechanism == OAUTHBEARER:
        who, hint = "the token", "check that it has not expired and that its issuer is trusted"
    else:
        who, hint = f"user {login.username!r}", "check the user name and the password"
    said = f" ({answer.error_message})" if answer.error_message else ""
    why = f"{address} refused {who} with {login.mechanism}{said}; {hint}"
    return ApiError(error.code, why)
