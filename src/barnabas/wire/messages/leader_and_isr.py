"""LeaderAndIsr: the controller sends a broker its replicas with the leader and the ISR of each.

Partitions are a flat list with topic names up to version 1, and grouped by topic from version 2 on. The response is
grouped by topic from version 5 on, and its topics have only ids.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple
from uuid import UUID

from barnabas.model import ZERO_ID
from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Essential, Int8, Int16, Int32, Int64, Since, Until
from barnabas.wire.messages.control_plane import UNKNOWN_BROKER_EPOCH


class LeaderAndIsrPartitionState(NamedTuple):
    """`partition_epoch` is the version of the partition's znode."""

    topic_name: Annotated[str, Until(1)] = ""
    partition_index: Int32 = 0
    controller_epoch: Int32 = 0
    leader: Int32 = -1
    leader_epoch: Int32 = -1
    isr: tuple[Int32, ...] = ()
    partition_epoch: Int32 = 0
    replicas: tuple[Int32, ...] = ()
    adding_replicas: Annotated[tuple[Int32, ...], Since(3)] = ()
    removing_replicas: Annotated[tuple[Int32, ...], Since(3)] = ()
    is_new: Annotated[Bool, Since(1)] = False
    leader_recovery_state: Annotated[Int8, Since(6), Essential] = 0


class LeaderAndIsrTopicState(NamedTuple):
    topic_name: str
    topic_id: Annotated[UUID, Since(5)] = ZERO_ID
    partition_states: tuple[LeaderAndIsrPartitionState, ...] = ()


class LeaderAndIsrLiveLeader(NamedTuple):
    broker_id: Int32
    host_name: str
    port: Int32


class LeaderAndIsrRequest(ApiMessage, frozen=True, kw_only=True):
    controller_id: Int32
    is_kraft_controller: Annotated[Bool, Since(7), Essential] = False
    controller_epoch: Int32
    broker_epoch: Annotated[Int64, Since(2)] = UNKNOWN_BROKER_EPOCH
    type: Annotated[Int8, Since(5), Essential] = 0
    """0 from a controller in ZooKeeper mode. A KRaft controller sends 1 (incremental) or 2 (full) in a migration."""
    ungrouped_partition_states: Annotated[
        tuple[LeaderAndIsrPartitionState, ...], Until(1), Essential
    ] = ()
    topic_states: Annotated[tuple[LeaderAndIsrTopicState, ...], Since(2), Essential] = ()
    live_leaders: tuple[LeaderAndIsrLiveLeader, ...] = ()


class LeaderAndIsrPartitionError(NamedTuple):
    topic_name: Annotated[str, Until(4)] = ""
    partition_index: Int32 = 0
    error_code: Int16 = 0


class LeaderAndIsrTopicError(NamedTuple):
    topic_id: UUID
    partition_errors: tuple[LeaderAndIsrPartitionError, ...]


class LeaderAndIsrResponse(ApiMessage, frozen=True, kw_only=True):
    error_code: Int16 = 0
    partition_errors: Annotated[tuple[LeaderAndIsrPartitionError, ...], Until(4), Essential] = ()
    topics: Annotated[tuple[LeaderAndIsrTopicError, ...], Since(5), Essential] = ()
