"""OffsetDelete: deletes committed offsets of a consumer group."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Int16, Int32


class OffsetDeleteRequestPartition(NamedTuple):
    partition_index: Int32


class OffsetDeleteRequestTopic(NamedTuple):
    name: str
    partitions: tuple[OffsetDeleteRequestPartition, ...]


class OffsetDeleteRequest(ApiMessage, frozen=True, kw_only=True):
    """The only version is not flexible."""

    group_id: str
    topics: tuple[OffsetDeleteRequestTopic, ...]


class OffsetDeleteResponsePartition(NamedTuple):
    partition_index: Int32
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(NamedTuple):
    name: str
    partitions: tuple[OffsetDeleteResponsePartition, ...]


class OffsetDeleteResponse(ApiMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: tuple[OffsetDeleteResponseTopic, ...] = ()
