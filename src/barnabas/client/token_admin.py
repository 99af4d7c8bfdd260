"""Admin client for delegation tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.core import raise_if
from barnabas.security.principal import Principal
from barnabas.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    TokenRenewer,
)
from barnabas.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    TokenOwner,
)
from barnabas.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

DEFAULT_MS = -1
"""Lifetime or renewal period that the broker chooses."""
DELETE = -1
"""Period after which a token expires: now. The broker deletes it."""


class TokenView(NamedTuple):
    """A token. Times are in milliseconds since 1970. The HMAC is the secret with which clients log in."""

    id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    hmac: bytes

    def __repr__(self) -> str:
        return f"TokenView({self.id!r})"


class TokenAdmin:
    """Methods raise ApiError. The client must have logged in without a delegation token."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def create_token(
        self,
        owner: Principal | None = None,
        renewers: Sequence[Principal] = (),
        lifetime_ms: int = DEFAULT_MS,
    ) -> TokenView:
        """Create a token. Without an owner, it belongs to the user of this client."""
        response = self.cluster.ask_any(
            CreateDelegationTokenRequest(
                owner_principal_type=None if owner is None else owner.type,
                owner_principal_name=None if owner is None else owner.name,
                renewers=tuple(TokenRenewer(each.type, each.name) for each in renewers),
                max_lifetime_ms=lifetime_ms,
            ),
            CreateDelegationTokenResponse,
        )
        raise_if(response.error_code)
        created = Principal(response.principal_name, response.principal_type)
        requester = response.token_requester_principal_name
        return TokenView(
            id=response.token_id,
            owner=created,
            requester=Principal(requester, response.token_requester_principal_type)
            if requester
            else created,
            renewers=tuple(renewers),
            issued_ms=response.issue_timestamp_ms,
            expires_ms=response.expiry_timestamp_ms,
            max_ms=response.max_timestamp_ms,
            hmac=bytes(response.hmac),
        )

    def describe_tokens(self, owners: Sequence[Principal] | None = None) -> list[TokenView]:
        """Return the tokens that this user may describe: those with these owners or renewers, or all. Oldest first."""
        wanted = (
            None if owners is None else tuple(TokenOwner(each.type, each.name) for each in owners)
        )
        response = self.cluster.ask_any(
            DescribeDelegationTokenRequest(owners=wanted), DescribeDelegationTokenResponse
        )
        raise_if(response.error_code)
        found = []
        for each in response.tokens:
            owner = Principal(each.principal_name, each.principal_type)
            requester = each.token_requester_principal_name
            found.append(
                TokenView(
                    id=each.token_id,
                    owner=owner,
                    requester=Principal(requester, each.token_requester_principal_type)
                    if requester
                    else owner,
                    renewers=tuple(
                        Principal(one.principal_name, one.principal_type) for one in each.renewers
                    ),
                    issued_ms=each.issue_timestamp,
                    expires_ms=each.expiry_timestamp,
                    max_ms=each.max_timestamp,
                    hmac=bytes(each.hmac),
                )
            )
        return sorted(found, key=lambda token: (token.issued_ms, token.id))

    def renew_token(self, hmac: bytes, period_ms: int = DEFAULT_MS) -> int:
        """Renew a token. Returns its new expiry in milliseconds since 1970."""
        response = self.cluster.ask_any(
            RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms),
            RenewDelegationTokenResponse,
        )
        raise_if(response.error_code)
        return response.expiry_timestamp_ms

    def expire_token(self, hmac: bytes, period_ms: int = DELETE) -> int:
        """Let a token expire after a period, or delete it. Returns its new expiry in milliseconds since 1970."""
        response = self.cluster.ask_any(
            ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms),
            ExpireDelegationTokenResponse,
        )
        raise_if(response.error_code)
        return response.expiry_timestamp_ms
