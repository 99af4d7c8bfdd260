"""Reassignments: start, completion, replacement, cancellation and errors, with the real plans."""

from __future__ import annotations

import pytest

from barnabas.controller.reassignment import requested_assignment
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.controller.steps import RemoveReassignmentRequests, WriteAssignments
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import NO_LEADER, BrokerId, TopicPartition
from tests.unit.controller.cluster import (
    SimulatedCluster,
    ids,
    replica,
    replica_assignment,
    summarize,
)

TP = TopicPartition("t", 0)


def cluster_with(*replicas: int, brokers: int = 6) -> SimulatedCluster:
    cluster = SimulatedCluster(*range(1, brokers + 1))
    cluster.create("t", replicas)
    cluster.take_sent()
    cluster.steps.clear()
    return cluster


def leader_and_isr(cluster: SimulatedCluster) -> tuple[int, tuple[BrokerId, ...]]:
    state = cluster.znodes.states[TP]
    return state.leader, state.isr


def error_of(cluster: SimulatedCluster, *target: int, tp: TopicPartition = TP) -> ApiError:
    with pytest.raises(ApiError) as caught:
        requested_assignment(cluster.context, tp, ids(*target))
    return caught.value


# ---- phases


def test_example_of_the_specification() -> None:
    cluster = cluster_with(1, 2, 3)
    cluster.reassign(TP, 4, 5, 6)
    assert cluster.topics["t"][0] == replica_assignment(
        4, 5, 6, 1, 2, 3, adding=(4, 5, 6), removing=(1, 2, 3)
    )
    assert leader_and_isr(cluster) == (1, ids(1, 2, 3))
    cluster.catch_up(TP, 1, 2, 3, 4, 5)
    cluster.complete_reassignments()
    assert leader_and_isr(cluster) == (1, ids(1, 2, 3, 4, 5)), "it waits for broker 6"
    cluster.catch_up(TP, 1, 2, 3, 4, 5, 6)
    cluster.complete_reassignments()
    assert leader_and_isr(cluster) == (4, ids(4, 5, 6))
    assert cluster.topics["t"][0] == replica_assignment(4, 5, 6)
    assert cluster.context.partitions_being_reassigned == {}
    assert cluster.leader_epoch(TP) == 5  # request, election, and one for each removed replica
    assert list(cluster.pending_deletes) == [replica(TP, each) for each in (1, 2, 3)]
    assert cluster.failures == []


def test_znode_names_the_origin_until_the_removed_replicas_are_deleted() -> None:
    cluster = cluster_with(1, 2)
    cluster.reassign(TP, 2, 3)
    cluster.catch_up(TP, 1, 2, 3)
    cluster.steps.clear()
    seen = []
    cluster.before_step = lambda step: (
        seen.append(list(cluster.pending_deletes)) if isinstance(step, WriteAssignments) else None
    )
    cluster.complete_reassignments()
    assert seen == [[replica(TP, 1)]]
    kinds = [type(step).__name__ for step in cluster.steps]
    assert kinds[-3:] == ["WriteAssignments", "RemoveReassignmentRequests", "SendUpdateMetadata"]


def test_new_replicas_get_leader_and_isr_as_new() -> None:
    cluster = cluster_with(1, 2)
    cluster.reassign(TP, 1, 3)
    assert [line for line in summarize(cluster.take_sent()) if line.startswith("LAI")] == [
        "LAI 1 t-0 leader=1 epoch=1 isr=1,2",
        "LAI 2 t-0 leader=1 epoch=1 isr=1,2",
        "LAI 3 t-0 leader=1 epoch=1 isr=1,2 new",
    ]
    assert cluster.context.replica_state(replica(TP, 3)) is ReplicaState.NEW


def test_leader_in_target_keeps_leadership() -> None:
    cluster = cluster_with(1, 2)
    cluster.reassign(TP, 1, 3)
    cluster.catch_up(TP, 1, 2, 3)
    cluster.complete_reassignments()
    assert leader_and_isr(cluster) == (1, ids(1, 3))
    assert cluster.leader_epoch(TP) == 3


def test_change_of_order_completes_at_once() -> None:
    cluster = cluster_with(1, 2)
    cluster.reassign(TP, 2, 1)
    assert cluster.topics["t"][0] == replica_assignment(2, 1)
    assert leader_and_isr(cluster) == (1, ids(1, 2)), "the preferred election comes later"
    assert cluster.context.partitions_being_reassigned == {}


def test_more_and_fewer_replicas() -> None:
    cluster = cluster_with(1)
    cluster.reassign(TP, 1, 2, 3)
    cluster.catch_up(TP, 1, 2, 3)
    cluster.complete_reassignments()
    assert cluster.topics["t"][0] == replica_assignment(1, 2, 3)
    cluster.reassign(TP, 2)
    assert cluster.topics["t"][0] == replica_assignment(2), "nothing to copy"
    assert leader_and_isr(cluster) == (2, ids(2))


def test_partitions_of_a_request_move_together() -> None:
    cluster = SimulatedCluster(1, 2, 3)
    partitions = cluster.create("t", (1,), (2,), (3,))
    for tp in partitions:
        cluster.reassign(tp, *(each % 3 + 1 for each in cluster.context.replicas(tp)))
    for tp in partitions:
        cluster.catch_up(tp, *cluster.context.replicas(tp))
    cluster.steps.clear()
    cluster.complete_reassignments()
    assert [type(step).__name__ for step in cluster.steps].count("WriteAssignments") == 1
    assert [cluster.context.replicas(tp) for tp in partitions] == [ids(2), ids(3), ids(1)]


# ---- failures of brokers


def test_reassignment_continues_under_a_new_controller() -> None:
    cluster = cluster_with(1, 2)
    cluster.reassign(TP, 3, 4)
    cluster.fail_over(BrokerId(2))
    assert cluster.context.partitions_being_reassigned == {TP: None}
    cluster.catch_up(TP, 1, 2, 3, 4)
    cluster.complete_reassignments()
    assert cluster.topics["t"][0] == replica_assignment(3, 4)
    assert leader_and_isr(cluster) == (3, ids(3, 4))


def test_new_controller_completes_after_crash_before_the_last_write() -> None:
    cluster = cluster_with(1, 2)
    cluster.reassign(TP, 3, 4)
    cluster.catch_up(TP, 1, 2, 3, 4)
    moving = cluster.topics["t"][0]
    cluster.complete_reassignments()
    cluster.topics["t"][0] = moving
    cluster.fail_over(BrokerId(2))
    assert cluster.topics["t"][0] == replica_assignment(3, 4)
    assert leader_and_isr(cluster) == (3, ids(3, 4))
    assert replica(TP, 1) in cluster.pending_deletes


def test_reassignment_waits_for_a_dead_target_broker() -> None:
    cluster = cluster_with(1, 2)
    cluster.reassign(TP, 1, 3)
    cluster.kill(3)
    cluster.complete_reassignments()
    assert cluster.context.partitions_being_reassigned == {TP: None}
    epoch = cluster.leader_epoch(TP)
    cluster.start(3)
    assert cluster.leader_epoch(TP) == epoch + 1, "the new replica gets the assignment again"
    cluster.catch_up(TP, 1, 2, 3)
    cluster.complete_reassignments()
    assert cluster.topics["t"][0] == replica_assignment(1, 3)


def test_leader_failure_during_reassignment_elects_another_replica() -> None:
    cluster = cluster_with(1, 2)
    cluster.reassign(TP, 3, 4)
    cluster.catch_up(TP, 1, 2, 3)
    cluster.kill(1)
    assert cluster.znodes.states[TP].leader == 3
    cluster.catch_up(TP, 2, 3, 4)
    cluster.complete_reassignments()
    assert leader_and_isr(cluster) == (3, ids(3, 4))


def test_no_replica_is_deleted_if_no_target_can_lead() -> None:
    cluster = cluster_with(1)
    cluster.reassign(TP, 2)
    cluster.catch_up(TP, 1, 2)
    cluster.context.set_replica_dir_offline(replica(TP, 2), offline=True)
    cluster.complete_reassignments()
    assert leader_and_isr(cluster) == (1, ids(1, 2))
    assert not cluster.pending_deletes
    assert cluster.context.partitions_being_reassigned == {TP: None}


def test_only_reassignments_with_a_changed_isr_are_checked() -> None:
    cluster = SimulatedCluster(1, 2)
    first, second = cluster.create("t", (1,), (1,))
    for tp in (first, second):
        cluster.reassign(tp, 2)
    cluster.catch_up(second, 1, 2)
    assert cluster.context.reassigned_with_new_isr == {second: None}
    cluster.complete_reassignments()
    assert cluster.context.partitions_being_reassigned == {first: None}
    assert cluster.context.reassigned_with_new_isr == {}


def test_failed_election_leaves_all_replicas_assigned() -> None:
    cluster = cluster_with(1)
    cluster.reassign(TP, 2)
    cluster.catch_up(TP, 1, 2)
    cluster.znodes.before_commit.append(lambda: cluster.znodes.change_isr(TP, 1))
    cluster.complete_reassignments()
    assert cluster.context.replicas(TP) == ids(2, 1)
    assert not cluster.pending_deletes
    assert cluster.topics["t"][0] == replica_assignment(2, 1, adding=(2,), removing=(1,))


def test_partition_without_a_leader_moves_to_live_brokers() -> None:
    cluster = SimulatedCluster(1, 2)
    cluster.create("t", (8, 9))
    assert cluster.context.partition_state(TP) is PartitionState.NEW
    cluster.reassign(TP, 2, 1)
    assert leader_and_isr(cluster) == (2, ids(2, 1))
    assert cluster.topics["t"][0] == replica_assignment(2, 1)


# ---- cancellation and replacement


def test_cancellation_restores_the_origin_and_deletes_new_replicas() -> None:
    cluster = cluster_with(1, 2)
    cluster.reassign(TP, 3, 4)
    cluster.catch_up(TP, 1, 2, 3)
    cluster.cancel_reassignment(TP)
    assert cluster.topics["t"][0] == replica_assignment(1, 2)
    assert leader_and_isr(cluster) == (1, ids(1, 2))
    assert list(cluster.pending_deletes) == [replica(TP, 3), replica(TP, 4)]
    assert cluster.context.partitions_being_reassigned == {}


def test_cancellation_moves_leadership_back() -> None:
    cluster = cluster_with(1, 2)
    cluster.reassign(TP, 3, 2)
    cluster.catch_up(TP, 1, 2, 3)
    cluster.elect_preferred_leaders(TP)
    assert cluster.znodes.states[TP].leader == 3
    cluster.cancel_reassignment(TP)
    assert leader_and_isr(cluster) == (2, ids(1, 2))


@pytest.mark.parametrize("offline", [(), (2,)], ids=["all online", "assigned replicas offline"])
def test_new_controller_removes_leader_that_a_cancellation_unassigned(
    offline: tuple[int, ...],
) -> None:
    """The last controller crashed after it had written the assignment, and before it elected another leader."""
    cluster = cluster_with(2)
    cluster.reassign(TP, 3, 2)
    cluster.catch_up(TP, 2, 3)
    cluster.elect_preferred_leaders(TP)
    assert cluster.znodes.states[TP].leader == 3
    cluster.topics["t"][0] = replica_assignment(2)
    for broker in offline:
        del cluster.registered[BrokerId(broker)]
    cluster.fail_over(BrokerId(1))
    assert leader_and_isr(cluster) == (NO_LEADER if offline else 2, ids(2))
    assert list(cluster.pending_deletes) == [replica(TP, 3)]


def test_new_controller_keeps_the_last_in_sync_replica_even_if_it_is_not_assigned() -> None:
    cluster = cluster_with(2)
    cluster.reassign(TP, 3)
    cluster.catch_up(TP, 2, 3)
    cluster.kill(2)
    cluster.topics["t"][0] = replica_assignment(2)
    cluster.fail_over(BrokerId(1))
    assert leader_and_isr(cluster) == (3, ids(3))
    assert not cluster.pending_deletes


def test_replacement_deletes_only_dropped_replicas() -> None:
    cluster = cluster_with(1, 2)
    cluster.reassign(TP, 3, 4)
    cluster.reassign(TP, 4, 5)
    assert cluster.topics["t"][0] == replica_assignment(4, 5, 1, 2, adding=(4, 5), removing=(1, 2))
    assert list(cluster.pending_deletes) == [replica(TP, 3)]


def test_cancellation_that_deletes_the_last_in_sync_replica_is_rejected() -> None:
    cluster = cluster_with(1)
    cluster.reassign(TP, 2)
    cluster.catch_up(TP, 1, 2)
    cluster.kill(1)
    with pytest.raises(ApiError, match="no in-sync replica would remain") as caught:
        cluster.cancel_reassignment(TP)
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_deletion_of_the_topic_removes_its_request() -> None:
    cluster = cluster_with(1)
    cluster.reassign(TP, 2)
    cluster.steps.clear()
    cluster.delete("t")
    assert cluster.steps[0] == RemoveReassignmentRequests(partitions=(TP,))


# ---- errors


def test_invalid_targets() -> None:
    cluster = cluster_with(1)
    assert error_of(cluster).message == "the replica list is empty"
    assert error_of(cluster, 2, 2).message == "replica list 2,2 has duplicates"
    assert error_of(cluster, -1).message == "broker id -1 is negative"
    assert error_of(cluster, 1, 9).message == "brokers 9 are not online"
    cluster.context.shutting_down_broker_ids.add(BrokerId(2))
    assert error_of(cluster, 2).code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_replica_on_an_offline_broker_may_stay() -> None:
    cluster = cluster_with(1, 2)
    cluster.kill(2)
    cluster.reassign(TP, 2, 3)
    assert cluster.context.assignment(TP).adding == ids(3)


def test_unknown_partition_and_deleted_topic() -> None:
    cluster = cluster_with(1)
    unknown = TopicPartition("t", 7)
    assert error_of(cluster, 2, tp=unknown).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(ApiError) as caught:
        requested_assignment(cluster.context, unknown, None)
    assert caught.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    cluster.context.queue_topic_deletion(["t"])
    assert error_of(cluster, 2).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_cancellation_without_a_reassignment() -> None:
    cluster = cluster_with(1)
    with pytest.raises(ApiError) as caught:
        cluster.cancel_reassignment(TP)
    assert caught.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
