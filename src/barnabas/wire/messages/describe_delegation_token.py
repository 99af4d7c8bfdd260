"""DescribeDelegationToken: the delegation tokens of some owners, or all that the client may see."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bytes, Int16, Int32, Int64, Since


class TokenOwner(NamedTuple):
    principal_type: str
    principal_name: str


class DescribeDelegationTokenRequest(ApiMessage, frozen=True, kw_only=True):
    """`owners` of None are all owners."""

    owners: tuple[TokenOwner, ...] | None = None


class DescribedTokenRenewer(NamedTuple):
    principal_type: str
    principal_name: str


class DescribedDelegationToken(NamedTuple):
    principal_type: str
    principal_name: str
    token_requester_principal_type: Annotated[str, Since(3)] = ""
    token_requester_principal_name: Annotated[str, Since(3)] = ""
    issue_timestamp: Int64 = -1
    expiry_timestamp: Int64 = -1
    max_timestamp: Int64 = -1
    token_id: str = ""
    hmac: Bytes = b""
    renewers: tuple[DescribedTokenRenewer, ...] = ()


class DescribeDelegationTokenResponse(ApiMessage, frozen=True, kw_only=True):
    """Timestamps are in milliseconds."""

    error_code: Int16 = 0
    tokens: tuple[DescribedDelegationToken, ...] = ()
    throttle_time_ms: Int32 = 0
