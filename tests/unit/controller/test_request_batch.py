"""Content, recipients and order of the requests of a batch."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.context import ControllerContext
from barnabas.controller.decision import SendLeaderAndIsr, SendStopReplica, SendUpdateMetadata
from barnabas.controller.request_batch import (
    RequestBatch,
    UnsentRequestsError,
    to_update_metadata_broker,
)
from barnabas.history.recorder import Request
from barnabas.model import (
    ZERO_ID,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicPartition,
    ZnodeVersion,
)
from barnabas.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from barnabas.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.unit.controller.cluster import broker, ids, replica_assignment, state, summarize

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OTHER = TopicPartition("u", 0)
US = BrokerId(1)
TOPIC_ID = UUID(int=7)


def batch() -> RequestBatch:
    context = ControllerContext()
    context.epoch = ControllerEpoch(5)
    for number in (1, 2, 3):
        context.set_broker(broker(number), BrokerEpoch(100 + number))
    context.add_topic("t", TOPIC_ID)
    context.add_topic("u")
    context.set_assignment(A, replica_assignment(3, 2, 1, adding=(3,), removing=(1,)))
    context.set_leadership(
        A, state(2, [2, 1], epoch=4, controller_epoch=5, version=9, recovering=True)
    )
    context.set_assignment(B, replica_assignment(1, 2))
    context.set_assignment(OTHER, replica_assignment(2, 3))
    context.set_leadership(OTHER, state(2, [2, 3], controller_epoch=5))
    return RequestBatch(US, context, "PLAINTEXT")


def test_leader_and_isr_request_is_complete() -> None:
    made = batch()
    made.add_leader_and_isr(ids(2), A, is_new=True)
    (to, content), *_ = made.flush()
    assert to == 2
    assert content == LeaderAndIsrRequest(
        controller_id=US,
        controller_epoch=ControllerEpoch(5),
        broker_epoch=BrokerEpoch(102),
        topic_states=(
            LeaderAndIsrTopicState(
                topic_name="t",
                topic_id=TOPIC_ID,
                partition_states=(
                    LeaderAndIsrPartitionState(
                        partition_index=0,
                        controller_epoch=ControllerEpoch(5),
                        leader=BrokerId(2),
                        leader_epoch=LeaderEpoch(4),
                        isr=ids(2, 1),
                        partition_epoch=ZnodeVersion(9),
                        replicas=ids(3, 2, 1),
                        adding_replicas=ids(3),
                        removing_replicas=ids(1),
                        is_new=True,
                        leader_recovery_state=1,
                    ),
                ),
            ),
        ),
        live_leaders=(LeaderAndIsrLiveLeader(2, "host2", 9092),),
    )


def test_update_metadata_goes_to_all_registered_brokers() -> None:
    made = batch()
    made.context.shutting_down_broker_ids.add(BrokerId(3))
    made.add_leader_and_isr(ids(2), A, is_new=False)
    sent = made.flush()
    assert [(to, type(content)) for to, content in sent] == [
        (2, LeaderAndIsrRequest),
        (1, UpdateMetadataRequest),
        (2, UpdateMetadataRequest),
        (3, UpdateMetadataRequest),
    ]
    last = sent[-1][1]
    assert last == UpdateMetadataRequest(
        controller_id=US,
        controller_epoch=ControllerEpoch(5),
        broker_epoch=BrokerEpoch(103),
        topic_states=(
            UpdateMetadataTopicState(
                topic_name="t",
                topic_id=TOPIC_ID,
                partition_states=(
                    UpdateMetadataPartitionState(
                        partition_index=0,
                        controller_epoch=ControllerEpoch(5),
                        leader=BrokerId(2),
                        leader_epoch=LeaderEpoch(4),
                        isr=ids(2, 1),
                        zk_version=ZnodeVersion(9),
                        replicas=ids(3, 2, 1),
                        offline_replicas=ids(3),
                    ),
                ),
            ),
        ),
        live_brokers=tuple(to_update_metadata_broker(broker(each)) for each in (1, 2, 3)),
    )


def test_requests_of_one_flush_share_content() -> None:
    made = batch()
    made.add_update_metadata(None, [A, OTHER])
    first, second, third = (content for _, content in made.flush())
    assert isinstance(first, UpdateMetadataRequest)
    assert isinstance(second, UpdateMetadataRequest)
    assert isinstance(third, UpdateMetadataRequest)
    assert first.topic_states is second.topic_states is third.topic_states
    assert first.live_brokers is second.live_brokers


def test_stop_replica_uses_given_epoch() -> None:
    made = batch()
    made.add_stop_replica(BrokerId(3), A, leader_epoch=LeaderEpoch(4), delete_partition=False)
    assert made.flush() == (
        (
            3,
            StopReplicaRequest(
                controller_id=US,
                controller_epoch=ControllerEpoch(5),
                broker_epoch=BrokerEpoch(103),
                topic_states=(
                    StopReplicaTopicState(
                        topic_name="t",
                        partition_states=(
                            StopReplicaPartitionState(
                                partition_index=0,
                                leader_epoch=LeaderEpoch(4),
                                delete_partition=False,
                            ),
                        ),
                    ),
                ),
            ),
        ),
    )


def test_order_is_leader_and_isr_then_metadata_then_stop_replica() -> None:
    made = batch()
    made.add_stop_replica(BrokerId(1), A, leader_epoch=LeaderEpoch(4), delete_partition=True)
    made.add_update_metadata(ids(3), [OTHER])
    made.add_leader_and_isr(ids(3, 1), A, is_new=False)
    assert summarize(made.flush()) == [
        "LAI 1 t-0 leader=2 epoch=4 isr=2,1",
        "LAI 3 t-0 leader=2 epoch=4 isr=2,1",
        "UM 1 u-0 leader=2 t-0 leader=2",
        "UM 2 u-0 leader=2 t-0 leader=2",
        "UM 3 u-0 leader=2 t-0 leader=2",
        "SR 1 t-0 epoch=4 delete",
    ]


def test_partitions_are_grouped_by_topic() -> None:
    made = batch()
    made.context.set_leadership(B, state(1, [1, 2]))
    for tp in (A, OTHER, B):
        made.add_leader_and_isr(ids(2), tp, is_new=False)
    content = made.flush()[0][1]
    assert isinstance(content, LeaderAndIsrRequest)
    assert [
        (each.topic_name, each.topic_id, [state.partition_index for state in each.partition_states])
        for each in content.topic_states
    ] == [("t", TOPIC_ID, [0, 1]), ("u", ZERO_ID, [0])]
    assert [leader.broker_id for leader in content.live_leaders] == [1, 2]


def test_new_and_delete_flags_are_kept() -> None:
    made = batch()
    made.add_leader_and_isr(ids(2), A, is_new=True)
    made.context.set_leadership(A, state(1, [1], epoch=5))
    made.add_leader_and_isr(ids(2, 3), A, is_new=False)
    for delete in (True, False):
        made.add_stop_replica(BrokerId(3), A, leader_epoch=LeaderEpoch(5), delete_partition=delete)
    requests = summarize(made.flush())
    assert requests[:2] == [
        "LAI 2 t-0 leader=1 epoch=5 isr=1 new",
        "LAI 3 t-0 leader=1 epoch=5 isr=1",
    ]
    assert requests[-1] == "SR 3 t-0 epoch=5 delete"


def test_leader_and_isr_keeps_state_at_decision_time() -> None:
    made = batch()
    made.add_leader_and_isr(ids(2, 3), A, is_new=False)
    made.context.set_leadership(A, state(1, [1], epoch=5))
    made.add_leader_and_isr(ids(3), A, is_new=False)
    assert summarize(made.flush())[:3] == [
        "LAI 2 t-0 leader=2 epoch=4 isr=2,1",
        "LAI 3 t-0 leader=1 epoch=5 isr=1",
        "UM 1 t-0 leader=1",
    ]


def test_topic_queued_for_deletion_has_no_leader_in_metadata() -> None:
    made = batch()
    made.context.queue_topic_deletion(["t"])
    made.add_update_metadata(ids(1), [A])
    content = made.flush()[0][1]
    assert isinstance(content, UpdateMetadataRequest)
    (partition,) = content.topic_states[0].partition_states
    assert (partition.leader, partition.leader_epoch, partition.zk_version) == (-2, 0, 0)
    assert partition.isr == ids(2, 1)


def test_partition_without_leader_is_not_in_metadata() -> None:
    made = batch()
    made.add_update_metadata(None, [B])
    assert summarize(made.flush()) == ["UM 1", "UM 2", "UM 3"]


def test_unregistered_brokers_get_no_requests() -> None:
    made = batch()
    made.add_leader_and_isr(ids(-1, 9), A, is_new=False)
    made.add_update_metadata(ids(-1, 9))
    made.add_stop_replica(BrokerId(-1), A, leader_epoch=LeaderEpoch(0), delete_partition=True)
    made.add_stop_replica(BrokerId(9), A, leader_epoch=LeaderEpoch(0), delete_partition=True)
    assert {to for to, _ in made.flush()} == {1, 2, 3}
    made.new_batch()


def test_unknown_leader_has_no_endpoint() -> None:
    made = batch()
    made.context.set_leadership(A, state(-1, [9]))
    made.add_leader_and_isr(ids(2), A, is_new=False)
    content = made.flush()[0][1]
    assert isinstance(content, LeaderAndIsrRequest)
    assert content.live_leaders == ()


@pytest.mark.parametrize(
    ("intent", "kind"),
    [
        (SendLeaderAndIsr(brokers=ids(2), partition=A, is_new=False), "LeaderAndIsr to 2"),
        (SendUpdateMetadata(brokers=ids(1, 3)), "UpdateMetadata to 1, 3"),
        (
            SendStopReplica(
                broker=BrokerId(3), partition=A, leader_epoch=LeaderEpoch(0), delete_partition=False
            ),
            "StopReplica to 3",
        ),
    ],
)
def test_unsent_batch_is_an_error(
    intent: SendLeaderAndIsr | SendUpdateMetadata | SendStopReplica, kind: str
) -> None:
    made = batch()
    made.new_batch()
    made.add([intent])
    with pytest.raises(UnsentRequestsError, match=kind):
        made.new_batch()
    made.clear()
    made.new_batch()
    assert made.flush() == ()


def test_delayed_partition_is_sent_once_with_next_leader() -> None:
    made = batch()
    made.delay((A,))
    for partition in (A, OTHER):
        made.add_leader_and_isr(ids(2), partition, is_new=False)
    other = "LAI 2 u-0 leader=2 epoch=0 isr=2,3"
    assert summarize(made.flush()) == [other, *(f"UM {to} u-0 leader=2" for to in (1, 2, 3))]

    made.new_batch()
    made.context.set_leadership(A, state(-1, [1], epoch=5))
    made.add_leader_and_isr(ids(1, 2), A, is_new=False)
    assert made.flush_leaders() == made.flush() == ()

    made.new_batch()
    made.context.set_leadership(A, state(1, [1], epoch=6))
    made.add_leader_and_isr(ids(1), A, is_new=False)
    assert summarize(made.flush()) == [
        "LAI 1 t-0 leader=1 epoch=6 isr=1",
        "LAI 2 t-0 leader=1 epoch=6 isr=1",
        *(f"UM {to} t-0 leader=1" for to in (1, 2, 3)),
    ]
    made.new_batch()
    assert made.flush() == ()


def test_unchanged_delayed_partition_is_sent_on_release() -> None:
    made = batch()
    made.delay((A,))
    made.add_leader_and_isr(ids(2), A, is_new=True)
    assert made.flush() == ()
    made.add_leader_and_isr(ids(3), OTHER, is_new=False)
    with pytest.raises(UnsentRequestsError, match="LeaderAndIsr to 3"):
        made.new_batch()
    made.flush()
    made.release_delayed()
    with pytest.raises(UnsentRequestsError, match="LeaderAndIsr to 2"):
        made.new_batch()
    assert summarize(made.flush()) == [
        "LAI 2 t-0 leader=2 epoch=4 isr=2,1 new",
        *(f"UM {to} t-0 leader=2" for to in (1, 2, 3)),
    ]


def test_missing_leader_is_sent_to_all_brokers() -> None:
    made = batch()
    made.delay((A,))
    made.context.set_leadership(A, state(-1, [1], epoch=5))
    made.add_leader_and_isr((), A, is_new=False)
    made.release_delayed()
    assert summarize(made.flush()) == [f"UM {to} t-0 leader=-1" for to in (1, 2, 3)]


intents = st.one_of(
    st.builds(
        SendLeaderAndIsr,
        brokers=st.lists(st.sampled_from(ids(1, 2, 3)), unique=True).map(tuple),
        partition=st.sampled_from([A, OTHER]),
        is_new=st.booleans(),
    ),
    st.builds(
        SendUpdateMetadata,
        brokers=st.none() | st.lists(st.sampled_from(ids(1, 2, 3)), unique=True).map(tuple),
        partitions=st.lists(st.sampled_from([A, OTHER]), unique=True).map(tuple),
    ),
    st.builds(
        SendStopReplica,
        broker=st.sampled_from(ids(1, 2, 3)),
        partition=st.sampled_from([A, B, OTHER]),
        leader_epoch=st.integers(-2, 3).map(LeaderEpoch),
        delete_partition=st.booleans(),
    ),
)


@given(st.lists(intents, max_size=12))
def test_every_intent_is_sent(
    intents_to_send: list[SendLeaderAndIsr | SendUpdateMetadata | SendStopReplica],
) -> None:
    made = batch()
    made.add(intents_to_send)
    sent = made.flush()
    assert made.flush() == ()
    kinds = [type(content) for _, content in sent]
    order = [LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest]
    assert kinds == sorted(kinds, key=order.index)
    assert len({(to, type(content)) for to, content in sent}) == len(sent)
    for intent in intents_to_send:
        match intent:
            case SendLeaderAndIsr():
                for to in intent.brokers:
                    sent_state = leader_and_isr_states(sent, to)[intent.partition]
                    assert sent_state.is_new or not intent.is_new
                assert all(intent.partition in metadata_partitions(sent, to) for to in ids(1, 2, 3))
            case SendUpdateMetadata():
                for to in ids(1, 2, 3) if intent.brokers is None else intent.brokers:
                    assert set(intent.partitions) <= metadata_partitions(sent, to)
            case SendStopReplica():
                deleted = stopped_partitions(sent, intent.broker)[intent.partition]
                assert deleted or not intent.delete_partition


def leader_and_isr_states(
    sent: tuple[tuple[BrokerId, Request], ...], to: BrokerId
) -> dict[TopicPartition, LeaderAndIsrPartitionState]:
    return {
        TopicPartition(topic.topic_name, each.partition_index): each
        for broker_id, content in sent
        if broker_id == to and isinstance(content, LeaderAndIsrRequest)
        for topic in content.topic_states
        for each in topic.partition_states
    }


def metadata_partitions(
    sent: tuple[tuple[BrokerId, Request], ...], to: BrokerId
) -> set[TopicPartition]:
    (content,) = (
        content
        for broker_id, content in sent
        if broker_id == to and isinstance(content, UpdateMetadataRequest)
    )
    return {
        TopicPartition(topic.topic_name, each.partition_index)
        for topic in content.topic_states
        for each in topic.partition_states
    }


def stopped_partitions(
    sent: tuple[tuple[BrokerId, Request], ...], to: BrokerId
) -> dict[TopicPartition, bool]:
    return {
        TopicPartition(topic.topic_name, each.partition_index): each.delete_partition
        for broker_id, content in sent
        if broker_id == to and isinstance(content, StopReplicaRequest)
        for topic in content.topic_states
        for each in topic.partition_states
    }
