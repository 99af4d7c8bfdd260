"""SaslHandshake on a connection that must not log in: one without SASL, or one that has logged in already."""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(
    _: BrokerContext, request: SaslHandshakeRequest, header: RequestHeader, connection: Connection
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
