"""AllocateProducerIds: a broker asks the controller for producer ids that no other broker will give out."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from barnabas.wire.codec import Int16, Int32, Int64
from barnabas.wire.messages.control import UNKNOWN_BROKER_EPOCH


class AllocateProducerIdsRequest(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 67
    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE_SINCE: ClassVar[int] = 0

    broker_id: Int32
    broker_epoch: Int64 = UNKNOWN_BROKER_EPOCH


class AllocateProducerIdsResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 67
    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE_SINCE: ClassVar[int] = 0

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0
