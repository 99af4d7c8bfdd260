"""DescribeDelegationToken: the tokens that the client owns, may renew, or may describe by an ACL."""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.security.token_requests import find_tokens
from barnabas.errors import ApiError
from barnabas.security.acl.model import Operation, ResourceType
from barnabas.security.delegation_token import DelegationToken
from barnabas.security.principal import Principal
from barnabas.tasks import Turns
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    DescribedTokenRenewer,
)


async def handle(
    context: BrokerContext,
    request: DescribeDelegationTokenRequest,
    _: RequestHeader,
    connection: Connection,
) -> DescribeDelegationTokenResponse:
    try:
        tokens = find_tokens(context, connection)
        tokens.require_enabled()
    except ApiError as error:
        return DescribeDelegationTokenResponse(error_code=error.code)
    owners: set[Principal] | None = None
    if request.owners is not None:
        owners = {Principal(each.principal_name, each.principal_type) for each in request.owners}
    described = []
    turns = Turns()
    for token in list(tokens.tokens.values()):
        await turns.yield_if_due()
        is_requested = owners is None or not owners.isdisjoint((token.owner, *token.renewers))
        if is_requested and may_describe(context, connection, token):
            described.append(describe(token, tokens.hmac(token.id)))
    return DescribeDelegationTokenResponse(tokens=tuple(described))


def may_describe(context: BrokerContext, connection: Connection, token: DelegationToken) -> bool:
    access = context.security.access
    return (
        token.may_renew(connection.principal)
        or access.allows(
            connection,
            Operation.DESCRIBE,
            ResourceType.DELEGATION_TOKEN,
            token.id,
            is_audited=False,
        )
        or access.allows(
            connection,
            Operation.DESCRIBE_TOKENS,
            ResourceType.USER,
            str(token.owner),
            is_audited=False,
        )
    )


def describe(token: DelegationToken, hmac: bytes) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=hmac,
        renewers=tuple(DescribedTokenRenewer(each.type, each.name) for each in token.renewers),
    )
