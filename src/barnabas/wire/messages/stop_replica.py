"""StopReplica: the controller stops replicas on a broker, and optionally deletes their logs.

Version 0 has a flat list of partitions, versions 1 and 2 group them by topic. Their `delete_partitions` applies to the
whole request. From version 3 on each partition has a leader epoch, so that stale requests are rejected.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Essential, Int16, Int32, Int64, Since, Until
from barnabas.wire.messages.control_plane import UNKNOWN_BROKER_EPOCH


class StopReplicaPartitionV0(NamedTuple):
    topic_name: str
    partition_index: Int32


class StopReplicaTopicV1(NamedTuple):
    name: str
    partition_indexes: tuple[Int32, ...]


class StopReplicaPartitionState(NamedTuple):
    """The leader epoch is -1 if unknown, and EPOCH_DURING_DELETE for a topic that is being deleted."""

    partition_index: Int32
    leader_epoch: Int32 = -1
    delete_partition: Bool = False


class StopReplicaTopicState(NamedTuple):
    topic_name: str
    partition_states: tuple[StopReplicaPartitionState, ...]


class StopReplicaRequest(ApiMessage, frozen=True, kw_only=True):
    controller_id: Int32
    is_kraft_controller: Annotated[Bool, Since(4), Essential] = False
    controller_epoch: Int32
    broker_epoch: Annotated[Int64, Since(1)] = UNKNOWN_BROKER_EPOCH
    delete_partitions: Annotated[Bool, Until(2), Essential] = False
    ungrouped_partitions: Annotated[tuple[StopReplicaPartitionV0, ...], Until(0), Essential] = ()
    topics: Annotated[tuple[StopReplicaTopicV1, ...], Since(1), Until(2), Essential] = ()
    topic_states: Annotated[tuple[StopReplicaTopicState, ...], Since(3), Essential] = ()


class StopReplicaPartitionError(NamedTuple):
    topic_name: str
    partition_index: Int32
    error_code: Int16 = 0


class StopReplicaResponse(ApiMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    partition_errors: tuple[StopReplicaPartitionError, ...] = ()
