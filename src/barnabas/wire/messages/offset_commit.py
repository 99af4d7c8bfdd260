"""OffsetCommit: commits the offsets of a consumer group."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Essential, Int16, Int32, Int64, Since, Until


class OffsetCommitRequestPartition(NamedTuple):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, Since(6)] = -1
    commit_timestamp: Annotated[Int64, Since(1), Until(1)] = -1
    committed_metadata: str | None = ""


class OffsetCommitRequestTopic(NamedTuple):
    name: str
    partitions: tuple[OffsetCommitRequestPartition, ...]


class OffsetCommitRequest(ApiMessage, frozen=True, kw_only=True):
    """Without a generation and a member id, the sender is not a member. Only an empty group accepts its commit."""

    group_id: str
    generation_id_or_member_epoch: Annotated[Int32, Since(1)] = -1
    member_id: Annotated[str, Since(1)] = ""
    group_instance_id: Annotated[str | None, Since(7), Essential] = None
    retention_time_ms: Annotated[Int64, Since(2), Until(4)] = -1
    topics: tuple[OffsetCommitRequestTopic, ...]


class OffsetCommitResponsePartition(NamedTuple):
    partition_index: Int32
    error_code: Int16 = 0


class OffsetCommitResponseTopic(NamedTuple):
    name: str
    partitions: tuple[OffsetCommitResponsePartition, ...]


class OffsetCommitResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: tuple[OffsetCommitResponseTopic, ...] = ()
