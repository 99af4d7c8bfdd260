"""CreateDelegationToken: creates a token with which other processes log in as its owner. Any broker serves it."""

from __future__ import annotations

from msgspec.structs import replace

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.security.token_requests import find_tokens
from barnabas.broker.topic_admin.topics import to_api_error
from barnabas.errors import ApiError, ErrorCode, RegistryError, StorageError
from barnabas.security.acl.model import Operation, ResourceType
from barnabas.security.delegation_token import check_renewer_count, check_renewers
from barnabas.security.principal import Principal
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


async def handle(
    context: BrokerContext,
    request: CreateDelegationTokenRequest,
    _: RequestHeader,
    connection: Connection,
) -> CreateDelegationTokenResponse:
    requester = owner = connection.principal
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_name, request.owner_principal_type or "User")
    response = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
    )
    try:
        tokens = find_tokens(context, connection)
        if owner != requester and not context.security.access.allows(
            connection, Operation.CREATE_TOKENS, ResourceType.USER, str(owner)
        ):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        check_renewer_count(len(request.renewers))
        renewers = tuple(
            Principal(each.principal_name, each.principal_type) for each in request.renewers
        )
        check_renewers(renewers)
        token = await tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    except (ApiError, RegistryError, StorageError) as error:
        return replace(response, error_code=to_api_error(error).code)
    return replace(
        response,
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.id,
        hmac=tokens.hmac(token.id),
    )
