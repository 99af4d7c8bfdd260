"""Functions that all handlers of delegation tokens use."""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.security.tokens import DelegationTokens
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import SecurityProtocol
from barnabas.security.principal import ANONYMOUS


def find_tokens(context: BrokerContext, connection: Connection) -> DelegationTokens:
    """Return the tokens, if this connection may use the APIs of tokens. Raises ApiError.

    The client must have logged in by itself: a token must not create another one.
    """
    protocol = context.config.protocol_of(connection.listener_name)
    is_anonymous = protocol is SecurityProtocol.SSL and connection.principal == ANONYMOUS
    is_token = connection.session is not None and connection.session.is_token
    if protocol is SecurityProtocol.PLAINTEXT or is_anonymous or is_token:
        raise ApiError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "log in with SASL or a client certificate, and without a delegation token",
        )
    return context.security.logins.tokens
