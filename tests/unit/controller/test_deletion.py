"""Topic deletion: order of the steps and reasons to wait."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.controller import deletion
from barnabas.controller.decision import SendUpdateMetadata
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.controller.steps import (
    DeleteTopicZnodes,
    MovePartitions,
    MoveReplicas,
    Step,
)
from barnabas.errors import ErrorCode
from barnabas.model import BrokerId, TopicPartition
from tests.unit.controller.cluster import (
    SimulatedCluster,
    replica,
    replica_assignment,
    state,
    summarize,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def cluster_with(*replicas: Sequence[int], brokers: Sequence[int] = (1, 2, 3)) -> SimulatedCluster:
    cluster = SimulatedCluster(*brokers)
    cluster.create("t", *replicas)
    cluster.steps.clear()
    cluster.take_sent()
    return cluster


def states_of(cluster: SimulatedCluster, *partitions: TopicPartition) -> list[str]:
    replicas = cluster.context.replicas_of(partitions or cluster.context.partitions_of("t"))
    return [f"{each.broker} {cluster.context.replica_state(each)}" for each in replicas]


def is_gone(cluster: SimulatedCluster, topic: str = "t") -> bool:
    context = cluster.context
    known = (
        topic in cluster.topics
        or topic in cluster.marked_for_deletion
        or topic in context.all_topics
        or topic in context.topics_to_be_deleted
        or topic in context.topics_with_deletion_started
        or topic in context.topics_ineligible_for_deletion
        or topic in {each.topic for each in cluster.znodes.states}
        or topic
        in {
            each.topic
            for partitions in context.replica_states_by_broker.values()
            for each in partitions
        }
        or topic in {each.partition.topic for each in context.unassigned_replica_states}
    )
    return not known


# ---- the regular case


def test_deletion_updates_metadata_then_stops_then_deletes_replicas() -> None:
    cluster = cluster_with((1, 2), (2, 3))
    replicas = (replica(T0, 1), replica(T0, 2), replica(T1, 2), replica(T1, 3))
    cluster.delete("t")
    assert cluster.steps == [
        MovePartitions(partitions=(T0, T1), target=PartitionState.OFFLINE),
        MovePartitions(partitions=(T0, T1), target=PartitionState.NON_EXISTENT),
        SendUpdateMetadata(partitions=(T0, T1)),
        MoveReplicas(replicas=replicas, target=ReplicaState.OFFLINE),
        MoveReplicas(replicas=replicas, target=ReplicaState.DELETION_STARTED),
    ]
    assert summarize(cluster.sent) == [
        "UM 1 t-0 leader=-2 t-1 leader=-2",
        "UM 2 t-0 leader=-2 t-1 leader=-2",
        "UM 3 t-0 leader=-2 t-1 leader=-2",
        "SR 1 t-0 epoch=-2",
        "SR 2 t-1 epoch=-2",
        "SR 2 t-0 epoch=-2",
        "SR 3 t-1 epoch=-2",
        "SR 1 t-0 epoch=-2 delete",
        "SR 2 t-0 epoch=-2 delete",
        "SR 2 t-1 epoch=-2 delete",
        "SR 3 t-1 epoch=-2 delete",
    ]
    assert not cluster.failures


def test_znodes_are_deleted_after_last_replica() -> None:
    cluster = cluster_with((1, 2), (2, 3))
    cluster.delete("t")
    cluster.answer_deletes(1, 3)
    assert "t" in cluster.topics
    assert states_of(cluster) == [
        "1 ReplicaDeletionSuccessful",
        "2 ReplicaDeletionStarted",
        "2 ReplicaDeletionStarted",
        "3 ReplicaDeletionSuccessful",
    ]
    cluster.steps.clear()
    cluster.answer_deletes(2)
    replicas = (replica(T0, 1), replica(T0, 2), replica(T1, 2), replica(T1, 3))
    assert cluster.steps == [
        MoveReplicas(replicas=(replicas[1:3]), target=ReplicaState.DELETION_SUCCESSFUL),
        MoveReplicas(replicas=replicas, target=ReplicaState.NON_EXISTENT),
        DeleteTopicZnodes(topics=("t",)),
    ]
    assert is_gone(cluster)
    assert not cluster.failures


def test_recreated_topic_starts_from_scratch() -> None:
    cluster = cluster_with((1, 2))
    cluster.kill(2)
    cluster.start(2)
    cluster.delete("t")
    cluster.answer_deletes()
    cluster.create("t", (2, 3))
    assert cluster.znodes.states[T0] == state(2, [2, 3])
    assert cluster.context.partition_state(T0) is PartitionState.ONLINE
    assert not cluster.failures


def test_topic_without_partitions_is_deleted_at_once() -> None:
    cluster = cluster_with()
    cluster.delete("t")
    assert cluster.steps == [DeleteTopicZnodes(topics=("t",))]
    assert is_gone(cluster)


def test_partitions_without_leader_are_deleted() -> None:
    cluster = cluster_with((4,), (1,))
    assert cluster.context.partition_state(T0) is PartitionState.NEW
    cluster.delete("t")
    cluster.answer_deletes()
    assert not is_gone(cluster)
    cluster.start(4)
    cluster.answer_deletes()
    assert is_gone(cluster)


def test_several_topics_are_deleted_together() -> None:
    cluster = cluster_with((1, 2))
    cluster.create("u", (2, 3))
    cluster.steps.clear()
    cluster.delete("u", "t")
    assert cluster.steps[0] == MovePartitions(
        partitions=(T0, TopicPartition("u", 0)), target=PartitionState.OFFLINE
    )
    assert len(cluster.steps) == 5
    cluster.answer_deletes()
    assert is_gone(cluster)
    assert is_gone(cluster, "u")


def test_metadata_is_sent_before_znodes_of_other_topic_are_deleted() -> None:
    cluster = cluster_with((1,))
    cluster.create("u", (1,))
    cluster.delete("t")
    cluster.marked_for_deletion.append("u")
    cluster.context.queue_topic_deletion(["u"])
    cluster.steps.clear()
    cluster.answer_deletes()
    kinds = [type(step) for step in cluster.steps]
    assert kinds.index(SendUpdateMetadata) < kinds.index(DeleteTopicZnodes)
    assert is_gone(cluster)
    assert list(cluster.pending_deletes) == [replica(TopicPartition("u", 0), 1)]


# ---- markers


def test_marker_of_unknown_topic_is_removed() -> None:
    cluster = cluster_with((1,))
    cluster.delete("never")
    assert cluster.marked_for_deletion == []
    assert cluster.steps == []


def test_markers_are_removed_if_deletion_is_disabled() -> None:
    cluster = cluster_with((1,))
    cluster.deletion_enabled = False
    cluster.delete("t", "never")
    assert cluster.marked_for_deletion == []
    assert cluster.steps == []
    assert not cluster.context.topics_to_be_deleted


def test_repeated_marker_starts_nothing() -> None:
    cluster = cluster_with((1, 2))
    cluster.delete("t")
    cluster.steps.clear()
    cluster.process_markers()
    assert cluster.steps == []


def test_next_controller_finishes_leftover_marker() -> None:
    cluster = cluster_with()
    del cluster.topics["t"]
    cluster.marked_for_deletion = ["t"]
    cluster.fail_over(BrokerId(1))
    assert cluster.steps[-1:] == [DeleteTopicZnodes(topics=("t",))]
    assert is_gone(cluster)


# ---- waiting


def test_dead_replica_delays_topic_deletion_but_not_other_replicas() -> None:
    cluster = cluster_with((1, 2, 3))
    cluster.kill(3)
    cluster.take_sent()
    cluster.delete("t")
    assert summarize(cluster.sent)[:2] == ["UM 1 t-0 leader=-2", "UM 2 t-0 leader=-2"]
    cluster.answer_deletes()
    assert states_of(cluster) == [
        "1 ReplicaDeletionSuccessful",
        "2 ReplicaDeletionSuccessful",
        "3 OfflineReplica",
    ]
    assert cluster.context.topics_ineligible_for_deletion == {"t": None}
    cluster.take_sent()
    cluster.start(3)
    stopped = [line for line in summarize(cluster.sent) if line.startswith("SR")]
    assert stopped == ["SR 3 t-0 epoch=-2", "SR 3 t-0 epoch=-2 delete"]
    cluster.answer_deletes()
    assert is_gone(cluster)
    assert not cluster.failures


def test_offline_dir_delays_deletion_until_restart() -> None:
    cluster = cluster_with((1, 2))
    cluster.context.set_replica_dir_offline(replica(T0, 2), offline=True)
    cluster.delete("t")
    cluster.answer_deletes()
    assert not is_gone(cluster)
    cluster.register(2)
    cluster.process_broker_changes()
    cluster.answer_deletes()
    assert is_gone(cluster)


def test_failed_replica_is_retried_when_its_broker_starts() -> None:
    cluster = cluster_with((1, 2))
    cluster.delete("t")
    cluster.answer_deletes(2, error=ErrorCode.KAFKA_STORAGE_ERROR)
    assert states_of(cluster) == ["1 ReplicaDeletionStarted", "2 ReplicaDeletionIneligible"]
    cluster.answer_deletes(1)
    assert states_of(cluster) == ["1 ReplicaDeletionSuccessful", "2 OfflineReplica"]
    assert not cluster.pending_deletes, "failures are not retried by a timer"
    cluster.start(4)
    assert not cluster.pending_deletes, "broker 4 has no replica"
    cluster.register(2)
    cluster.process_broker_changes()
    assert list(cluster.pending_deletes) == [replica(T0, 2)]
    cluster.answer_deletes()
    assert is_gone(cluster)
    assert not cluster.failures


def test_broker_that_dies_during_deletion_must_delete_again() -> None:
    cluster = cluster_with((1, 2))
    cluster.delete("t")
    cluster.kill(2)
    assert states_of(cluster) == ["1 ReplicaDeletionStarted", "2 ReplicaDeletionIneligible"]
    cluster.answer_deletes(1)
    cluster.start(2)
    cluster.answer_deletes(2)
    assert is_gone(cluster)
    assert not cluster.failures


def test_returning_broker_deletes_after_others_are_done() -> None:
    cluster = cluster_with((1, 2))
    cluster.delete("t")
    cluster.kill(2)
    cluster.take_sent()
    cluster.start(2)
    assert states_of(cluster) == ["1 ReplicaDeletionStarted", "2 OnlineReplica"]
    requests = summarize(cluster.sent)
    assert "LAI 2 t-0 leader=-1 epoch=2 isr=2" in requests, "it keeps its replica until then"
    assert not any(line.startswith("SR") for line in requests)
    cluster.answer_deletes(1)
    assert states_of(cluster) == ["1 ReplicaDeletionSuccessful", "2 ReplicaDeletionStarted"]
    cluster.answer_deletes(2)
    assert is_gone(cluster)
    assert not cluster.failures


def test_restarted_broker_is_asked_again() -> None:
    cluster = cluster_with((1, 2))
    cluster.delete("t")
    cluster.answer_deletes(1)
    cluster.register(2)
    cluster.process_broker_changes()
    assert list(cluster.pending_deletes) == [replica(T0, 2)]
    cluster.answer_deletes(2)
    assert is_gone(cluster)


def test_response_of_dead_broker_is_ignored() -> None:
    cluster = cluster_with((1, 2))
    cluster.delete("t")
    cluster.kill(2)
    before = states_of(cluster)
    late = deletion.plan_stop_replica_results(cluster.context, BrokerId(2), {T0: ErrorCode.NONE})
    cluster.execute(late)
    assert states_of(cluster) == before
    assert not cluster.failures


def test_response_for_other_topic_is_ignored() -> None:
    cluster = cluster_with((1, 2))
    for error in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR):
        plan = deletion.plan_stop_replica_results(cluster.context, BrokerId(1), {T0: error})
        assert list(plan) == []


def test_broker_that_dies_after_deletion_is_not_awaited() -> None:
    cluster = cluster_with((1, 2))
    cluster.delete("t")
    cluster.answer_deletes(2)
    cluster.kill(2)
    assert states_of(cluster) == ["1 ReplicaDeletionStarted", "2 ReplicaDeletionSuccessful"]
    cluster.answer_deletes(1)
    assert is_gone(cluster)


def test_waiting_topic_does_not_block_others() -> None:
    cluster = cluster_with((1, 3))
    cluster.create("u", (1, 2))
    cluster.kill(3)
    cluster.delete("t", "u")
    cluster.answer_deletes()
    assert not is_gone(cluster)
    assert is_gone(cluster, "u")


# ---- reassignment


def test_deletion_ends_reassignment_and_deletes_new_replicas() -> None:
    cluster = cluster_with((1,))
    cluster.reassign(T0, 2)
    cluster.delete("t")
    assert cluster.context.partitions_being_reassigned == {}
    assert list(cluster.pending_deletes) == [replica(T0, 1), replica(T0, 2)]
    cluster.complete_reassignments()
    cluster.answer_deletes()
    assert is_gone(cluster)


def test_deletion_of_reassigned_topic_waits_for_dead_target_broker() -> None:
    cluster = cluster_with((1,))
    cluster.reassign(T0, 2)
    cluster.kill(2)
    cluster.delete("t")
    cluster.answer_deletes()
    assert not is_gone(cluster)
    cluster.start(2)
    cluster.answer_deletes()
    assert is_gone(cluster)


# ---- failover


def test_controller_failover_during_deletion_with_dead_broker() -> None:
    cluster = cluster_with((1, 2), (2, 3), (3, 1))
    cluster.kill(3)
    cluster.delete("t")
    del cluster.registered[BrokerId(1)]
    cluster.steps.clear()
    cluster.take_sent()
    cluster.fail_over(BrokerId(2))
    assert cluster.context.topics_ineligible_for_deletion == {"t": None}
    assert not any(isinstance(step, MovePartitions) for step in cluster.steps)
    assert not cluster.pending_deletes
    assert {line.split()[0] for line in summarize(cluster.sent)} == {"LAI", "UM"}
    shown = {word for line in summarize(cluster.sent) for word in line.split() if "UM" in line}
    assert "leader=-2" in shown
    assert not any(word.startswith("leader=") and word != "leader=-2" for word in shown)

    cluster.start(3)
    assert {each.broker for each in cluster.pending_deletes} == {2, 3}
    cluster.answer_deletes()
    assert cluster.context.topics_ineligible_for_deletion == {"t": None}
    assert not is_gone(cluster)

    cluster.start(1)
    assert {each.broker for each in cluster.pending_deletes} == {1}
    cluster.answer_deletes()
    assert is_gone(cluster)
    assert not cluster.failures


class ControllerCrashed(Exception):
    pass


def test_next_controller_finishes_deletion_after_crash_at_any_step() -> None:
    for steps in range(100):
        cluster = cluster_with((1, 2), (2, 3), (4, 1))
        left = steps

        def crash(step: Step) -> None:
            nonlocal left
            if left == 0:
                raise ControllerCrashed
            left -= 1

        cluster.before_step = crash
        try:
            cluster.delete("t")
            cluster.answer_deletes(1, 2)
            cluster.start(4)
            cluster.answer_deletes()
        except ControllerCrashed:
            cluster.before_step = lambda step: None
            cluster.batch.clear()
            cluster.fail_over(BrokerId(3))
            if BrokerId(4) not in cluster.registered:
                cluster.start(4)
            cluster.answer_deletes()
            cluster.answer_deletes()
            assert is_gone(cluster), f"after {steps} steps"
            assert not cluster.failures
        else:
            assert is_gone(cluster)
            return
    pytest.fail("a deletion has fewer steps than this")


@pytest.mark.parametrize("lost", [(T0,), (T0, T1)])
def test_missing_state_znodes_do_not_block_deletion(lost: tuple[TopicPartition, ...]) -> None:
    cluster = cluster_with((1, 2), (2, 3))
    cluster.marked_for_deletion = ["t"]
    for partition in lost:
        del cluster.znodes.states[partition]
    cluster.fail_over(BrokerId(2))
    assert set(cluster.pending_deletes) == set(cluster.context.replicas_of((T0, T1)))
    cluster.answer_deletes()
    assert is_gone(cluster)
    assert not cluster.failures


def test_new_controller_deletes_marked_topics() -> None:
    cluster = cluster_with((1, 2))
    cluster.topics["u"] = {0: replica_assignment(1)}
    cluster.marked_for_deletion = ["t"]
    cluster.fail_over(BrokerId(2))
    assert set(cluster.pending_deletes) == {replica(T0, 1), replica(T0, 2)}
    cluster.answer_deletes()
    assert is_gone(cluster)
    assert not is_gone(cluster, "u")
