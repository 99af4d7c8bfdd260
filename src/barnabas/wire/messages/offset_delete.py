"""OffsetDelete: deletes committed offsets of a consumer group. The topics of its response are as in OffsetCommit."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Int16, Int32
from barnabas.wire.messages.offset_commit import OffsetCommitResponseTopic


class OffsetDeleteRequestPartition(NamedTuple):
    partition_index: Int32


class OffsetDeleteRequestTopic(NamedTuple):
    name: str
    partitions: tuple[OffsetDeleteRequestPartition, ...]


class OffsetDeleteRequest(ApiMessage, frozen=True, kw_only=True):
    group_id: str
    topics: tuple[OffsetDeleteRequestTopic, ...]


class OffsetDeleteResponse(ApiMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: tuple[OffsetCommitResponseTopic, ...] = ()
