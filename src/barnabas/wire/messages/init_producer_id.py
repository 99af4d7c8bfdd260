"""InitProducerId: assigns the producer id and epoch of an idempotent or transactional producer."""

from __future__ import annotations

from typing import Annotated

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Essential, Int16, Int32, Int64, Since


class InitProducerIdRequest(ApiMessage, frozen=True, kw_only=True):
    transactional_id: str | None
    transaction_timeout_ms: Int32
    producer_id: Annotated[Int64, Since(3), Essential] = -1
    producer_epoch: Annotated[Int16, Since(3), Essential] = -1


class InitProducerIdResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
