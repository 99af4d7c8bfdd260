"""RenewDelegationToken: moves the expiry of a delegation token to a later time."""

from __future__ import annotations

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bytes, Int16, Int32, Int64


class RenewDelegationTokenRequest(ApiMessage, frozen=True, kw_only=True):
    """A period of -1 is the broker's default."""

    hmac: Bytes
    renew_period_ms: Int64 = -1


class RenewDelegationTokenResponse(ApiMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = -1
    throttle_time_ms: Int32 = 0
