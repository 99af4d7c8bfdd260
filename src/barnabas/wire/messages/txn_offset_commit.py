"""TxnOffsetCommit: commits offsets of a consumer group as part of a transaction."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Essential, Int16, Int32, Int64, Since


class TxnOffsetCommitRequestPartition(NamedTuple):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, Since(2)] = -1
    committed_metadata: str | None = ""


class TxnOffsetCommitRequestTopic(NamedTuple):
    name: str
    partitions: tuple[TxnOffsetCommitRequestPartition, ...]


class TxnOffsetCommitRequest(ApiMessage, frozen=True, kw_only=True):
    """Before version 3 the sender is not known to be a member, so that the group accepts its commit."""

    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Annotated[Int32, Since(3), Essential] = -1
    member_id: Annotated[str, Since(3), Essential] = ""
    group_instance_id: Annotated[str | None, Since(3), Essential] = None
    topics: tuple[TxnOffsetCommitRequestTopic, ...]


class TxnOffsetCommitResponsePartition(NamedTuple):
    partition_index: Int32
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(NamedTuple):
    name: str
    partitions: tuple[TxnOffsetCommitResponsePartition, ...]


class TxnOffsetCommitResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = ()
