"""AlterPartition: a leader asks the controller to change the ISR of its partitions.

Topics have names up to version 1 and ids from version 2 on. The proposed ISR is a list of broker ids up to version 2.
From version 3 on the list also has the epoch of each broker at its last fetch, so that the controller can reject a
broker that has restarted since.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple
from uuid import UUID

from barnabas.model import ZERO_ID
from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Essential, Int8, Int16, Int32, Int64, Since, Until
from barnabas.wire.messages.control_plane import UNKNOWN_BROKER_EPOCH


class BrokerState(NamedTuple):
    broker_id: Int32
    broker_epoch: Int64 = UNKNOWN_BROKER_EPOCH


class AlterPartitionPartition(NamedTuple):
    """`partition_epoch` is the epoch that the change is based on. The controller rejects any other."""

    partition_index: Int32
    leader_epoch: Int32
    new_isr: Annotated[tuple[Int32, ...], Until(2), Essential] = ()
    new_isr_with_epochs: Annotated[tuple[BrokerState, ...], Since(3), Essential] = ()
    leader_recovery_state: Annotated[Int8, Since(1), Essential] = 0
    partition_epoch: Int32 = 0


class AlterPartitionTopic(NamedTuple):
    topic_name: Annotated[str, Until(1)] = ""
    topic_id: Annotated[UUID, Since(2)] = ZERO_ID
    partitions: tuple[AlterPartitionPartition, ...] = ()


class AlterPartitionRequest(ApiMessage, frozen=True, kw_only=True):
    broker_id: Int32
    broker_epoch: Int64 = UNKNOWN_BROKER_EPOCH
    topics: tuple[AlterPartitionTopic, ...] = ()


class AlterPartitionPartitionResponse(NamedTuple):
    """The partition after the change. With an error, the fields after the error have no meaning."""

    partition_index: Int32
    error_code: Int16 = 0
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    isr: tuple[Int32, ...] = ()
    leader_recovery_state: Annotated[Int8, Since(1)] = 0
    partition_epoch: Int32 = 0


class AlterPartitionTopicResponse(NamedTuple):
    topic_name: Annotated[str, Until(1)] = ""
    topic_id: Annotated[UUID, Since(2)] = ZERO_ID
    partitions: tuple[AlterPartitionPartitionResponse, ...] = ()


class AlterPartitionResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: tuple[AlterPartitionTopicResponse, ...] = ()
