"""AddOffsetsToTxn: adds the offsets of a consumer group to the transaction of a producer."""

from __future__ import annotations

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Int16, Int32, Int64


class AddOffsetsToTxnRequest(ApiMessage, frozen=True, kw_only=True):
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str


class AddOffsetsToTxnResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
