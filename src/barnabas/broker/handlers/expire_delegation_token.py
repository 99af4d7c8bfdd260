"""ExpireDelegationToken: moves the expiry of a token to an earlier time, or deletes it. Any broker serves it."""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.security.token_requests import find_tokens
from barnabas.broker.topic_admin.topics import to_api_error
from barnabas.errors import ApiError, RegistryError, StorageError
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


async def handle(
    context: BrokerContext,
    request: ExpireDelegationTokenRequest,
    _: RequestHeader,
    connection: Connection,
) -> ExpireDelegationTokenResponse:
    try:
        tokens = find_tokens(context, connection)
        expires_ms = await tokens.expire(
            bytes(request.hmac), connection.principal, request.expiry_time_period_ms
        )
    except (ApiError, RegistryError, StorageError) as error:
        return ExpireDelegationTokenResponse(error_code=to_api_error(error).code)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms)
