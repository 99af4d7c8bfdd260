"""ExpireDelegationToken: moves the expiry of a delegation token to an earlier time, or deletes it."""

from __future__ import annotations

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bytes, Int16, Int32, Int64


class ExpireDelegationTokenRequest(ApiMessage, frozen=True, kw_only=True):
    """A negative period deletes the token at once."""

    hmac: Bytes
    expiry_time_period_ms: Int64 = -1


class ExpireDelegationTokenResponse(ApiMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = -1
    throttle_time_ms: Int32 = 0
