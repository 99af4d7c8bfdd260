"""AllocateProducerIds: a broker requests a block of producer ids from the controller."""

from __future__ import annotations

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Int16, Int32, Int64


class AllocateProducerIdsRequest(ApiMessage, frozen=True, kw_only=True):
    broker_id: Int32
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0
