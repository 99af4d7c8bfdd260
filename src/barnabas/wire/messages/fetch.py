"""Fetch: batches from a log, for consumers and followers.

Topics have names up to version 12 and ids from version 13 on. A follower sends its broker id in `replica_id` up to
version 14, and in `replica_state` from version 15 on.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple
from uuid import UUID

from barnabas.model import ZERO_ID
from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Essential, Int8, Int16, Int32, Int64, Records, Since, Tag, Until
from barnabas.wire.messages.current_leader import LEADER_UNKNOWN, LeaderIdAndEpoch, NodeEndpoint


class FetchReplicaState(NamedTuple):
    """The follower that sends the request. Kafka calls it ReplicaState."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


NOT_A_REPLICA = FetchReplicaState()
READ_COMMITTED = 1
"""Isolation level of consumers that do not read records of open and aborted transactions. The other level is 0."""


class FetchPartition(NamedTuple):
    partition: Int32
    current_leader_epoch: Annotated[Int32, Since(9)] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, Since(12), Essential] = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[UUID, Since(17), Tag(0)] = ZERO_ID


class FetchTopic(NamedTuple):
    topic: Annotated[str, Until(12)] = ""
    topic_id: Annotated[UUID, Since(13)] = ZERO_ID
    partitions: tuple[FetchPartition, ...] = ()


class ForgottenTopic(NamedTuple):
    topic: Annotated[str, Since(7), Until(12)] = ""
    topic_id: Annotated[UUID, Since(13)] = ZERO_ID
    partitions: Annotated[tuple[Int32, ...], Since(7)] = ()


class FetchRequest(ApiMessage, frozen=True, kw_only=True):
    cluster_id: Annotated[str | None, Since(12), Tag(0)] = None
    replica_id: Annotated[Int32, Until(14), Essential] = -1
    replica_state: Annotated[FetchReplicaState, Since(15), Tag(1), Essential] = NOT_A_REPLICA
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Annotated[Int32, Since(3)] = 0x7FFF_FFFF
    isolation_level: Annotated[Int8, Since(4)] = 0
    session_id: Annotated[Int32, Since(7)] = 0
    session_epoch: Annotated[Int32, Since(7)] = -1
    topics: tuple[FetchTopic, ...]
    forgotten_topics_data: Annotated[tuple[ForgottenTopic, ...], Since(7), Essential] = ()
    rack_id: Annotated[str, Since(11)] = ""


class DivergingEpoch(NamedTuple):
    """The epoch and end offset to which a follower with a diverging log truncates. Kafka calls it EpochEndOffset."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


class SnapshotId(NamedTuple):
    end_offset: Int64 = -1
    epoch: Int32 = -1


NO_DIVERGENCE = DivergingEpoch()
NO_SNAPSHOT = SnapshotId()


class AbortedTransaction(NamedTuple):
    producer_id: Int64
    first_offset: Int64


class PartitionData(NamedTuple):
    partition_index: Int32
    error_code: Int16 = 0
    high_watermark: Int64 = -1
    last_stable_offset: Annotated[Int64, Since(4)] = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    diverging_epoch: Annotated[DivergingEpoch, Since(12), Tag(0)] = NO_DIVERGENCE
    current_leader: Annotated[LeaderIdAndEpoch, Since(12), Tag(1)] = LEADER_UNKNOWN
    snapshot_id: Annotated[SnapshotId, Since(12), Tag(2)] = NO_SNAPSHOT
    aborted_transactions: Annotated[tuple[AbortedTransaction, ...] | None, Since(4)] = None
    preferred_read_replica: Annotated[Int32, Since(11), Essential] = -1
    records: Records | None = b""


class FetchableTopicResponse(NamedTuple):
    topic: Annotated[str, Until(12)] = ""
    topic_id: Annotated[UUID, Since(13)] = ZERO_ID
    partitions: tuple[PartitionData, ...] = ()


class FetchResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Annotated[Int16, Since(7)] = 0
    session_id: Annotated[Int32, Since(7), Essential] = 0
    responses: tuple[FetchableTopicResponse, ...] = ()
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], Since(16), Tag(0)] = ()
