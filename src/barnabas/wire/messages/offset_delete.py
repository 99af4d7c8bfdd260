"""OffsetDelete: deletes committed offsets of a consumer group."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from msgspec import Struct

from barnabas.wire.apis import ApiKey
from barnabas.wire.codec import Int16, Int32


class OffsetDeleteRequestPartition(NamedTuple):
    partition_index: Int32


class OffsetDeleteRequestTopic(NamedTuple):
    name: str
    partitions: tuple[OffsetDeleteRequestPartition, ...]


class OffsetDeleteRequest(Struct, frozen=True, kw_only=True):
    """The only version is not flexible."""

    API_KEY: ClassVar[int] = ApiKey.OFFSET_DELETE
    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE_SINCE: ClassVar[int] = 1

    group_id: str
    topics: tuple[OffsetDeleteRequestTopic, ...]


class OffsetDeleteResponsePartition(NamedTuple):
    partition_index: Int32
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(NamedTuple):
    name: str
    partitions: tuple[OffsetDeleteResponsePartition, ...]


class OffsetDeleteResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = ApiKey.OFFSET_DELETE
    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE_SINCE: ClassVar[int] = 1

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: tuple[OffsetDeleteResponseTopic, ...] = ()
