"""Replica state machine: new, online and offline replicas, ISR changes and deletion."""

from __future__ import annotations

import pytest

from barnabas.controller import replica_machine
from barnabas.controller.decision import FailureReason, UnreadableState
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.model import BrokerId, LeaderAndIsr, TopicPartition
from tests.unit.controller.cluster import CAUSE, SimulatedCluster, ids, replica, state, summarize

TP = TopicPartition("t", 0)


def cluster_with(*replicas: int) -> SimulatedCluster:
    """Cluster of brokers 1, 2 and 3 with one partition, led by the first of `replicas`, all in
    sync.
    """
    cluster = SimulatedCluster(1, 2, 3)
    cluster.create("t", replicas)
    cluster.take_sent()
    cluster.znodes.written.clear()
    return cluster


def test_new_replica_gets_current_leader() -> None:
    cluster = cluster_with(1)
    cluster.move_replicas((replica(TP, 2),), ReplicaState.NEW)
    assert summarize(cluster.sent)[0] == "LAI 2 t-0 leader=1 epoch=0 isr=1 new"
    assert cluster.context.replica_state(replica(TP, 2)) is ReplicaState.NEW


def test_new_replica_without_leader_sends_nothing() -> None:
    cluster = SimulatedCluster(1)
    cluster.create("t", (7,))
    before = len(cluster.sent)
    cluster.move_replicas((replica(TP, 1),), ReplicaState.NEW)
    assert len(cluster.sent) == before


def test_leader_cannot_be_a_new_replica() -> None:
    cluster = cluster_with(1)
    cluster.context.set_replica_state(replica(TP, 1), ReplicaState.NON_EXISTENT)
    cluster.move_replicas((replica(TP, 1),), ReplicaState.NEW)
    assert [each.reason for each in cluster.failures] == [FailureReason.REPLICA_IS_LEADER]
    assert cluster.context.replica_state(replica(TP, 1)) is ReplicaState.NON_EXISTENT


def test_new_to_online_sends_nothing_and_extends_assignment() -> None:
    cluster = cluster_with(1)
    cluster.move_replicas((replica(TP, 2),), ReplicaState.NEW)
    cluster.take_sent()
    cluster.move_replicas((replica(TP, 2),), ReplicaState.ONLINE)
    assert cluster.sent == []
    assert cluster.context.replicas(TP) == ids(1, 2)


@pytest.mark.parametrize(
    "before", [ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_INELIGIBLE]
)
def test_replica_back_online_gets_current_state(before: ReplicaState) -> None:
    cluster = cluster_with(1, 2)
    cluster.context.set_replica_state(replica(TP, 2), before)
    cluster.move_replicas((replica(TP, 2),), ReplicaState.ONLINE)
    assert summarize(cluster.sent) == [
        "LAI 2 t-0 leader=1 epoch=0 isr=1,2",
        "UM 1 t-0 leader=1",
        "UM 2 t-0 leader=1",
        "UM 3 t-0 leader=1",
    ]


def test_online_replica_without_leader_gets_nothing() -> None:
    cluster = cluster_with(1, 2)
    cluster.context.remove_leadership(TP)
    cluster.move_replicas((replica(TP, 2),), ReplicaState.ONLINE)
    assert cluster.sent == []


def test_offline_follower_leaves_isr() -> None:
    cluster = cluster_with(1, 2, 3)
    cluster.move_replicas((replica(TP, 2),), ReplicaState.OFFLINE)
    assert cluster.znodes.states[TP] == state(1, [1, 3], epoch=1, version=1)
    assert cluster.context.leadership[TP] == state(1, [1, 3], epoch=1, version=1)
    assert summarize(cluster.sent) == [
        "LAI 1 t-0 leader=1 epoch=1 isr=1,3",
        "LAI 3 t-0 leader=1 epoch=1 isr=1,3",
        "UM 1 t-0 leader=1",
        "UM 2 t-0 leader=1",
        "UM 3 t-0 leader=1",
        "SR 2 t-0 epoch=0",
    ]


def test_offline_leader_leaves_isr_without_leader() -> None:
    cluster = cluster_with(1, 2)
    cluster.move_replicas((replica(TP, 1),), ReplicaState.OFFLINE)
    assert cluster.znodes.states[TP] == state(-1, [2], epoch=1, version=1)


def test_last_in_sync_replica_stays_in_isr() -> None:
    cluster = cluster_with(1)
    cluster.move_replicas((replica(TP, 1),), ReplicaState.OFFLINE)
    assert cluster.znodes.states[TP] == state(-1, [1], epoch=1, version=1)


def test_offline_replica_out_of_sync_writes_nothing() -> None:
    cluster = cluster_with(1, 2)
    cluster.znodes.change_isr(TP, 1)
    cluster.move_replicas((replica(TP, 2),), ReplicaState.OFFLINE)
    assert cluster.znodes.written == []
    assert cluster.context.leadership[TP] == state(1, [1], version=1)
    assert summarize(cluster.sent)[0] == "LAI 1 t-0 leader=1 epoch=0 isr=1"
    assert cluster.context.replica_state(replica(TP, 2)) is ReplicaState.OFFLINE


def test_unchanged_state_gets_own_controller_epoch() -> None:
    cluster = cluster_with(1, 2)
    cluster.znodes.change_isr(TP, 1)
    cluster.context.epoch = type(cluster.context.epoch)(5)
    cluster.move_replicas((replica(TP, 2),), ReplicaState.OFFLINE)
    assert cluster.context.leadership[TP].controller_epoch == 5
    assert cluster.znodes.states[TP].controller_epoch == 1


def test_lost_race_is_read_and_decided_again() -> None:
    cluster = cluster_with(1, 2, 3)
    cluster.znodes.before_commit.append(lambda: cluster.znodes.change_isr(TP, 1, 2))
    cluster.move_replicas((replica(TP, 2),), ReplicaState.OFFLINE)
    assert cluster.znodes.states[TP] == state(1, [1], epoch=1, version=2)
    assert summarize(cluster.sent).count("SR 2 t-0 epoch=0") == 1


def test_two_replicas_leave_isr_one_by_one() -> None:
    cluster = cluster_with(1, 2, 3)
    both = (replica(TP, 3), replica(TP, 2))
    cluster.move_replicas(both, ReplicaState.OFFLINE)
    assert cluster.znodes.states[TP] == state(1, [1], epoch=2, version=2)
    assert [write.state.isr for write in cluster.znodes.written] == [ids(1, 3), ids(1)]
    requests = summarize(cluster.sent)
    assert "LAI 1 t-0 leader=1 epoch=2 isr=1" in requests
    assert not any("epoch=1 isr=1,3" in line for line in requests if line.startswith("LAI 1"))


def test_second_replica_of_partition_is_deferred() -> None:
    cluster = cluster_with(1, 2, 3)
    both = (replica(TP, 3), replica(TP, 2))
    decision = replica_machine.decide_replica_transitions(
        cluster.context, both, ReplicaState.OFFLINE, cause=CAUSE, states=cluster.read((TP,))
    )
    assert [move.item for move in decision.transitions] == [replica(TP, 2)]
    assert decision.deferred == (replica(TP, 3),)


def test_offline_replica_of_deleted_topic_notifies_no_others() -> None:
    cluster = cluster_with(1, 2)
    cluster.context.queue_topic_deletion(["t"])
    cluster.move_replicas((replica(TP, 2),), ReplicaState.OFFLINE)
    assert cluster.znodes.states[TP] == state(1, [1], epoch=1, version=1)
    assert summarize(cluster.sent) == ["SR 2 t-0 epoch=-2"]


def test_offline_replica_without_leader_sends_metadata_only() -> None:
    cluster = cluster_with(1, 2)
    cluster.context.remove_leadership(TP)
    cluster.move_replicas((replica(TP, 2),), ReplicaState.OFFLINE)
    assert summarize(cluster.sent) == ["UM 1", "UM 2", "UM 3", "SR 2 t-0 epoch=-1"]
    assert cluster.context.replica_state(replica(TP, 2)) is ReplicaState.OFFLINE


@pytest.mark.parametrize(
    ("read", "deleting", "reason"),
    [
        (None, False, FailureReason.STATE_MISSING),
        (None, True, None),
        (UnreadableState(why="not JSON"), False, FailureReason.STATE_UNREADABLE),
        (state(1, [1, 2], controller_epoch=2), False, FailureReason.CONTROLLER_MOVED),
    ],
)
def test_replica_that_cannot_leave_isr_is_stopped(
    read: LeaderAndIsr | UnreadableState | None, deleting: bool, reason: FailureReason | None
) -> None:
    cluster = cluster_with(1, 2)
    if deleting:
        cluster.context.queue_topic_deletion(["t"])
    decision = replica_machine.decide_replica_transitions(
        cluster.context,
        [replica(TP, 2)],
        ReplicaState.OFFLINE,
        cause=CAUSE,
        states={} if read is None else {TP: read},
    )
    assert decision.transitions == ()
    assert [each.reason for each in decision.failures] == ([] if reason is None else [reason])
    outcome = decision.outcome_of({})
    assert [each.broker for each in outcome.committed.stops] == [2]
    assert outcome.has_newer_controller == (reason is FailureReason.CONTROLLER_MOVED)


def test_replica_deletion_steps() -> None:
    cluster = cluster_with(1, 2)
    gone = replica(TP, 2)
    cluster.move_replicas((gone,), ReplicaState.OFFLINE)
    cluster.take_sent()
    cluster.move_replicas((gone,), ReplicaState.DELETION_STARTED)
    assert summarize(cluster.take_sent()) == ["SR 2 t-0 epoch=1 delete"]
    cluster.move_replicas((gone,), ReplicaState.DELETION_SUCCESSFUL)
    cluster.move_replicas((gone,), ReplicaState.NON_EXISTENT)
    assert cluster.sent == []
    assert cluster.context.replicas(TP) == ids(1)
    assert cluster.context.partitions_on_broker(BrokerId(2)) == ()
    assert cluster.context.replica_state(replica(TP, 1)) is ReplicaState.ONLINE
    assert cluster.context.replica_state(replica(TP, 2)) is ReplicaState.NON_EXISTENT
    assert not cluster.context.unassigned_replica_states


def test_failed_deletion_can_return_to_offline() -> None:
    cluster = cluster_with(1, 2)
    kept = replica(TP, 2)
    for target in (
        ReplicaState.OFFLINE,
        ReplicaState.DELETION_STARTED,
        ReplicaState.DELETION_INELIGIBLE,
        ReplicaState.OFFLINE,
    ):
        cluster.move_replicas((kept,), target)
        assert cluster.context.replica_state(kept) is target


def test_only_replicas_leaving_isr_need_a_read() -> None:
    cluster = cluster_with(1, 2)
    both = (replica(TP, 1), replica(TP, 2))
    to_read = replica_machine.partitions_for_isr_removal
    assert to_read(cluster.context, both, ReplicaState.OFFLINE) == (TP,)
    assert to_read(cluster.context, both, ReplicaState.ONLINE) == ()
    cluster.context.remove_leadership(TP)
    assert to_read(cluster.context, both, ReplicaState.OFFLINE) == ()
    assert cluster.context.partition_state(TP) is PartitionState.ONLINE
