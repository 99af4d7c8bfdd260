"""RenewDelegationToken: moves the expiry of a token to a later time. Any broker serves it."""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.security.token_requests import find_tokens
from barnabas.broker.topic_admin.topics import to_api_error
from barnabas.errors import ApiError, RegistryError, StorageError
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


async def handle(
    context: BrokerContext,
    request: RenewDelegationTokenRequest,
    _: RequestHeader,
    connection: Connection,
) -> RenewDelegationTokenResponse:
    try:
        tokens = find_tokens(context, connection)
        expires_ms = await tokens.renew(
            bytes(request.hmac), connection.principal, request.renew_period_ms
        )
    except (ApiError, RegistryError, StorageError) as error:
        return RenewDelegationTokenResponse(error_code=to_api_error(error).code)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires_ms)
