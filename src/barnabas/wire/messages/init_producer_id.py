"""InitProducerId: assigns the producer id and epoch of an idempotent producer."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Struct

from barnabas.wire.apis import ApiKey
from barnabas.wire.codec import Essential, Int16, Int32, Int64, Since


class InitProducerIdRequest(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = ApiKey.INIT_PRODUCER_ID
    VERSIONS: ClassVar[range] = range(6)
    FLEXIBLE_SINCE: ClassVar[int] = 2

    transactional_id: str | None
    transaction_timeout_ms: Int32
    producer_id: Annotated[Int64, Since(3), Essential] = -1
    producer_epoch: Annotated[Int16, Since(3), Essential] = -1


class InitProducerIdResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = ApiKey.INIT_PRODUCER_ID
    VERSIONS: ClassVar[range] = range(6)
    FLEXIBLE_SINCE: ClassVar[int] = 2

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
