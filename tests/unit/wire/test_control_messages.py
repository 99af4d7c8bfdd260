"""Values that a version cannot express are rejected if dropping them would change the meaning of a
request.
"""

from __future__ import annotations

from uuid import UUID

import pytest
from msgspec.structs import replace

from barnabas.errors import LocalWireError
from barnabas.wire.codec import Message, decode, encode
from barnabas.wire.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
)
from barnabas.wire.messages.control_plane import (
    EPOCH_DURING_DELETE,
    UNKNOWN_BROKER_EPOCH,
    LeaderRecoveryState,
)
from barnabas.wire.messages.elect_leaders import (
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from barnabas.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from barnabas.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from barnabas.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

TOPIC_ID = UUID(int=7)
LEADER_AND_ISR = LeaderAndIsrRequest(controller_id=1, controller_epoch=2)
UPDATE_METADATA = UpdateMetadataRequest(controller_id=1, controller_epoch=2)
STOP_REPLICA = StopReplicaRequest(controller_id=1, controller_epoch=2)
RECOVERING = LeaderAndIsrPartitionState(leader_recovery_state=LeaderRecoveryState.RECOVERING)


def alter(partition: AlterPartitionPartition) -> AlterPartitionRequest:
    return AlterPartitionRequest(
        broker_id=1, topics=(AlterPartitionTopic(partitions=(partition,)),)
    )


OLD_SHAPES = [
    (
        replace(LEADER_AND_ISR, ungrouped_partition_states=(LeaderAndIsrPartitionState(),)),
        range(2),
    ),
    (
        replace(UPDATE_METADATA, ungrouped_partition_states=(UpdateMetadataPartitionState(),)),
        range(5),
    ),
    (replace(STOP_REPLICA, ungrouped_partitions=(StopReplicaPartitionV0("t", 0),)), range(1)),
    (replace(STOP_REPLICA, topics=(StopReplicaTopicV1("t", (0,)),)), range(1, 3)),
    (replace(STOP_REPLICA, delete_partitions=True), range(3)),
    (LeaderAndIsrResponse(partition_errors=(LeaderAndIsrPartitionError("t"),)), range(5)),
    (alter(AlterPartitionPartition(0, 3, new_isr=(1, 2))), range(3)),
]
NEW_SHAPES = [
    (replace(LEADER_AND_ISR, topic_states=(LeaderAndIsrTopicState("t"),)), range(2, 8)),
    (
        replace(
            LEADER_AND_ISR, topic_states=(LeaderAndIsrTopicState("t", TOPIC_ID, (RECOVERING,)),)
        ),
        range(6, 8),
    ),
    (replace(LEADER_AND_ISR, type=2), range(5, 8)),
    (replace(LEADER_AND_ISR, is_kraft_controller=True), range(7, 8)),
    (replace(UPDATE_METADATA, topic_states=(UpdateMetadataTopicState("t"),)), range(5, 9)),
    (replace(UPDATE_METADATA, type=2), range(8, 9)),
    (replace(UPDATE_METADATA, is_kraft_controller=True), range(8, 9)),
    (
        replace(
            STOP_REPLICA,
            topic_states=(
                StopReplicaTopicState("t", (StopReplicaPartitionState(0, EPOCH_DURING_DELETE),)),
            ),
        ),
        range(3, 5),
    ),
    (replace(STOP_REPLICA, is_kraft_controller=True), range(4, 5)),
    (LeaderAndIsrResponse(topics=(LeaderAndIsrTopicError(TOPIC_ID, ()),)), range(5, 8)),
    (alter(AlterPartitionPartition(0, 3, new_isr_with_epochs=(BrokerState(1, 99),))), range(3, 4)),
    (
        alter(AlterPartitionPartition(0, 3, leader_recovery_state=LeaderRecoveryState.RECOVERING)),
        range(1, 4),
    ),
    (
        ElectLeadersRequest(election_type=ElectionType.UNCLEAN, topic_partitions=None),
        range(1, 3),
    ),
    (ElectLeadersResponse(error_code=41), range(1, 3)),
]


@pytest.mark.parametrize(("message", "versions"), OLD_SHAPES + NEW_SHAPES)
def test_message_is_written_only_in_versions_that_can_express_it(
    message: Message, versions: range
) -> None:
    for version in type(message).VERSIONS:
        if version in versions:
            written = encode(message, version)
            assert encode(decode(type(message), version, written), version) == written
        else:
            with pytest.raises(LocalWireError, match=" has no "):
                encode(message, version)


def test_optional_fields_are_dropped_in_old_versions() -> None:
    partition = LeaderAndIsrPartitionState(
        partition_index=3, leader=1, isr=(1,), replicas=(1, 2), adding_replicas=(2,), is_new=True
    )
    request = replace(
        LEADER_AND_ISR,
        broker_epoch=5,
        topic_states=(LeaderAndIsrTopicState("t", TOPIC_ID, (partition,)),),
    )
    assert decode(LeaderAndIsrRequest, 7, encode(request, 7)) == request
    (topic,) = decode(LeaderAndIsrRequest, 2, encode(request, 2)).topic_states
    assert topic == ("t", UUID(int=0), (partition._replace(adding_replicas=()),))
    flat = replace(LEADER_AND_ISR, broker_epoch=5, ungrouped_partition_states=(partition,))
    oldest = decode(LeaderAndIsrRequest, 0, encode(flat, 0))
    assert oldest.broker_epoch == UNKNOWN_BROKER_EPOCH
    assert not oldest.ungrouped_partition_states[0].is_new


def test_elect_leaders_v0_is_a_preferred_election() -> None:
    request = ElectLeadersRequest(topic_partitions=None)
    read = decode(ElectLeadersRequest, 0, encode(request, 0))
    assert read == request
    assert read.election_type == ElectionType.PREFERRED
