"""CreateDelegationToken: creates a token with which other processes log in as its owner."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bytes, Essential, Int16, Int32, Int64, Since


class TokenRenewer(NamedTuple):
    principal_type: str
    principal_name: str


class CreateDelegationTokenRequest(ApiMessage, frozen=True, kw_only=True):
    """Without an owner, the token belongs to the user of the connection. A lifetime of -1 is the broker's default."""

    owner_principal_type: Annotated[str | None, Since(3), Essential] = None
    owner_principal_name: Annotated[str | None, Since(3), Essential] = None
    renewers: tuple[TokenRenewer, ...] = ()
    max_lifetime_ms: Int64 = -1


class CreateDelegationTokenResponse(ApiMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: Annotated[str, Since(3)] = ""
    token_requester_principal_name: Annotated[str, Since(3)] = ""
    issue_timestamp_ms: Int64 = -1
    expiry_timestamp_ms: Int64 = -1
    max_timestamp_ms: Int64 = -1
    token_id: str = ""
    hmac: Bytes = b""
    throttle_time_ms: Int32 = 0
