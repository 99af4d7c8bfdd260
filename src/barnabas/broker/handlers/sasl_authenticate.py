"""SaslAuthenticate on a connection that must not log in: one without SASL, or one that has logged in already."""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


def handle(
    _: BrokerContext,
    request: SaslAuthenticateRequest,
    header: RequestHeader,
    connection: Connection,
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
