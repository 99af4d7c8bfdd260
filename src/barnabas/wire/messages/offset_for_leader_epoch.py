"""OffsetForLeaderEpoch: the end offset of a leader epoch in the leader's log."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Int16, Int32, Int64, Since


class OffsetForLeaderPartition(NamedTuple):
    partition: Int32
    current_leader_epoch: Annotated[Int32, Since(2)] = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(NamedTuple):
    topic: str
    partitions: tuple[OffsetForLeaderPartition, ...]


class OffsetForLeaderEpochRequest(ApiMessage, frozen=True, kw_only=True):
    replica_id: Annotated[Int32, Since(3)] = -2
    topics: tuple[OffsetForLeaderTopic, ...]


class EpochEndOffset(NamedTuple):
    error_code: Int16
    partition: Int32
    leader_epoch: Annotated[Int32, Since(1)] = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(NamedTuple):
    topic: str
    partitions: tuple[EpochEndOffset, ...]


class OffsetForLeaderEpochResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    topics: tuple[OffsetForLeaderTopicResult, ...] = ()
