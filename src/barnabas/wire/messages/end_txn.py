"""EndTxn: commits or aborts the transaction of a producer."""

from __future__ import annotations

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Int16, Int32, Int64


class EndTxnRequest(ApiMessage, frozen=True, kw_only=True):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


class EndTxnResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
