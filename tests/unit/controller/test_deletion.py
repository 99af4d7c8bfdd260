"""How a topic goes, in which order, and what makes it wait."""

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
from tests.unit.controller.cluster import Cluster, brief, held, replica, state

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def cluster_with(*replicas: Sequence[int], brokers: Sequence[int] = (1, 2, 3)) -> Cluster:
    cluster = Cluster(*brokers)
    cluster.create("t", *replicas)
    cluster.steps.clear()
    cluster.take_sent()
    return cluster


def states_of(cluster: Cluster, *partitions: TopicPartition) -> list[str]:
    replicas = cluster.context.replicas_of(partitions or cluster.context.partitions_of("t"))
    return [f"{each.broker} {cluster.context.replica_state(each)}" for each in replicas]


def is_gone(cluster: Cluster, topic: str = "t") -> bool:
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
        in {each.topic for held in context.replica_states_by_broker.values() for each in held}
        or topic in {each.partition.topic for each in context.unassigned_replica_states}
    )
    return not known


# ---- the way through --------------------------------------------------------------------------------------


def test_brokers_forget_a_topic_then_stop_it_then_delete_it() -> None:
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
    assert brief(cluster.sent) == [
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


def test_the_znodes_go_when_the_last_replica_is_gone() -> None:
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


def test_a_topic_of_the_same_name_starts_from_nothing() -> None:
    cluster = cluster_with((1, 2))
    cluster.kill(2)
    cluster.start(2)
    cluster.delete("t")
    cluster.answer_deletes()
    cluster.create("t", (2, 3))
    assert cluster.znodes.states[T0] == state(2, [2, 3])
    assert cluster.context.partition_state(T0) is PartitionState.ONLINE
    assert not cluster.failures


def test_a_topic_without_partitions_goes_at_once() -> None:
    cluster = cluster_with()
    cluster.delete("t")
    assert cluster.steps == [DeleteTopicZnodes(topics=("t",))]
    assert is_gone(cluster)


def test_partitions_that_never_had_a_leader_are_deleted_too() -> None:
    cluster = cluster_with((4,), (1,))
    assert cluster.context.partition_state(T0) is PartitionState.NEW
    cluster.delete("t")
    cluster.answer_deletes()
    assert not is_gone(cluster)
    cluster.start(4)
    cluster.answer_deletes()
    assert is_gone(cluster)


def test_several_topics_go_together() -> None:
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


def test_a_topic_that_begins_to_go_is_told_before_another_is_cleared_away() -> None:
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
    assert list(cluster.to_delete) == [replica(TopicPartition("u", 0), 1)]


# ---- markers ----------------------------------------------------------------------------------------------


def test_a_marker_for_a_topic_nobody_knows_is_removed() -> None:
    cluster = cluster_with((1,))
    cluster.delete("never")
    assert cluster.marked_for_deletion == []
    assert cluster.steps == []


def test_markers_are_removed_where_deletion_is_disabled() -> None:
    cluster = cluster_with((1,))
    cluster.deletion_enabled = False
    cluster.delete("t", "never")
    assert cluster.marked_for_deletion == []
    assert cluster.steps == []
    assert not cluster.context.topics_to_be_deleted


def test_a_marker_seen_again_starts_nothing_again() -> None:
    cluster = cluster_with((1, 2))
    cluster.delete("t")
    cluster.steps.clear()
    cluster.notice_markers()
    assert cluster.steps == []


def test_a_marker_that_outlived_its_topic_is_the_next_controllers_to_finish() -> None:
    cluster = cluster_with()
    del cluster.topics["t"]
    cluster.marked_for_deletion = ["t"]
    cluster.fail_over(BrokerId(1))
    assert cluster.steps[-1:] == [DeleteTopicZnodes(topics=("t",))]
    assert is_gone(cluster)


# ---- what makes it wait -----------------------------------------------------------------------------------


def test_a_dead_replica_makes_the_topic_wait_but_the_others_go_and_clients_do_not_see_it() -> None:
    cluster = cluster_with((1, 2, 3))
    cluster.kill(3)
    cluster.take_sent()
    cluster.delete("t")
    assert brief(cluster.sent)[:2] == ["UM 1 t-0 leader=-2", "UM 2 t-0 leader=-2"]
    cluster.answer_deletes()
    assert states_of(cluster) == [
        "1 ReplicaDeletionSuccessful",
        "2 ReplicaDeletionSuccessful",
        "3 OfflineReplica",
    ]
    assert cluster.context.topics_ineligible_for_deletion == {"t": None}
    cluster.take_sent()
    cluster.start(3)
    stopped = [line for line in brief(cluster.sent) if line.startswith("SR")]
    assert stopped == ["SR 3 t-0 epoch=-2", "SR 3 t-0 epoch=-2 delete"]
    cluster.answer_deletes()
    assert is_gone(cluster)
    assert not cluster.failures


def test_a_broken_disk_makes_the_topic_wait_for_the_restart() -> None:
    cluster = cluster_with((1, 2))
    cluster.context.set_replica_dir_offline(replica(T0, 2), offline=True)
    cluster.delete("t")
    cluster.answer_deletes()
    assert not is_gone(cluster)
    cluster.register(2)
    cluster.notice()
    cluster.answer_deletes()
    assert is_gone(cluster)


def test_a_replica_that_fails_makes_the_topic_wait_until_one_of_its_brokers_starts() -> None:
    cluster = cluster_with((1, 2))
    cluster.delete("t")
    cluster.answer_deletes(2, error=ErrorCode.KAFKA_STORAGE_ERROR)
    assert states_of(cluster) == ["1 ReplicaDeletionStarted", "2 ReplicaDeletionIneligible"]
    cluster.answer_deletes(1)
    assert states_of(cluster) == ["1 ReplicaDeletionSuccessful", "2 OfflineReplica"]
    assert not cluster.to_delete, "there is no timer"
    cluster.start(4)
    assert not cluster.to_delete, "broker 4 has nothing to do with it"
    cluster.register(2)
    cluster.notice()
    assert list(cluster.to_delete) == [replica(T0, 2)]
    cluster.answer_deletes()
    assert is_gone(cluster)
    assert not cluster.failures


def test_a_broker_that_dies_while_it_deletes_has_not_deleted() -> None:
    cluster = cluster_with((1, 2))
    cluster.delete("t")
    cluster.kill(2)
    assert states_of(cluster) == ["1 ReplicaDeletionStarted", "2 ReplicaDeletionIneligible"]
    cluster.answer_deletes(1)
    cluster.start(2)
    cluster.answer_deletes(2)
    assert is_gone(cluster)
    assert not cluster.failures


def test_a_broker_that_returns_while_others_still_delete_has_its_turn_when_they_are_done() -> None:
    cluster = cluster_with((1, 2))
    cluster.delete("t")
    cluster.kill(2)
    cluster.take_sent()
    cluster.start(2)
    assert states_of(cluster) == ["1 ReplicaDeletionStarted", "2 OnlineReplica"]
    said = brief(cluster.sent)
    assert "LAI 2 t-0 leader=-1 epoch=2 isr=2" in said, "what it held, it holds until its turn"
    assert not any(line.startswith("SR") for line in said)
    cluster.answer_deletes(1)
    assert states_of(cluster) == ["1 ReplicaDeletionSuccessful", "2 ReplicaDeletionStarted"]
    cluster.answer_deletes(2)
    assert is_gone(cluster)
    assert not cluster.failures


def test_a_bounced_broker_is_asked_again() -> None:
    cluster = cluster_with((1, 2))
    cluster.delete("t")
    cluster.answer_deletes(1)
    cluster.register(2)
    cluster.notice()
    assert list(cluster.to_delete) == [replica(T0, 2)]
    cluster.answer_deletes(2)
    assert is_gone(cluster)


def test_an_answer_from_before_the_broker_died_changes_nothing() -> None:
    cluster = cluster_with((1, 2))
    cluster.delete("t")
    cluster.kill(2)
    before = states_of(cluster)
    late = deletion.plan_stop_replica_results(cluster.context, BrokerId(2), {T0: ErrorCode.NONE})
    cluster.follow(late)
    assert states_of(cluster) == before
    assert not cluster.failures


def test_an_answer_about_a_topic_that_is_not_being_deleted_changes_nothing() -> None:
    cluster = cluster_with((1, 2))
    for error in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR):
        plan = deletion.plan_stop_replica_results(cluster.context, BrokerId(1), {T0: error})
        assert list(plan) == []


def test_a_broker_that_dies_after_it_deleted_is_not_waited_for() -> None:
    cluster = cluster_with((1, 2))
    cluster.delete("t")
    cluster.answer_deletes(2)
    cluster.kill(2)
    assert states_of(cluster) == ["1 ReplicaDeletionStarted", "2 ReplicaDeletionSuccessful"]
    cluster.answer_deletes(1)
    assert is_gone(cluster)


def test_a_topic_that_waits_holds_up_no_other() -> None:
    cluster = cluster_with((1, 3))
    cluster.create("u", (1, 2))
    cluster.kill(3)
    cluster.delete("t", "u")
    cluster.answer_deletes()
    assert not is_gone(cluster)
    assert is_gone(cluster, "u")


# ---- reassignment -----------------------------------------------------------------------------------------


def test_a_topic_that_is_reassigned_is_deleted_when_the_reassignment_is_done() -> None:
    cluster = cluster_with((1,))
    cluster.begin_reassignment(T0, 2)
    cluster.delete("t")
    assert cluster.steps == []
    cluster.catch_up(T0, 1, 2)
    cluster.finish_reassignment(T0)
    assert list(cluster.to_delete) == [replica(T0, 1), replica(T0, 2)]
    cluster.answer_deletes()
    assert is_gone(cluster)


def test_the_start_of_a_broker_does_not_end_the_wait_for_a_reassignment() -> None:
    cluster = cluster_with((1,))
    cluster.begin_reassignment(T0, 2)
    cluster.delete("t")
    cluster.register(2)
    cluster.notice()
    assert not cluster.to_delete
    assert cluster.context.topics_ineligible_for_deletion == {"t": None}


# ---- failover ---------------------------------------------------------------------------------------------


def test_the_controller_dies_while_a_topic_is_deleted_and_another_broker_is_down() -> None:
    cluster = cluster_with((1, 2), (2, 3), (3, 1))
    cluster.kill(3)
    cluster.delete("t")
    del cluster.registered[BrokerId(1)]
    cluster.steps.clear()
    cluster.take_sent()
    cluster.fail_over(BrokerId(2))
    assert cluster.context.topics_ineligible_for_deletion == {"t": None}
    assert not any(isinstance(step, MovePartitions) for step in cluster.steps)
    assert not cluster.to_delete
    assert {line.split()[0] for line in brief(cluster.sent)} == {"LAI", "UM"}
    shown = {word for line in brief(cluster.sent) for word in line.split() if "UM" in line}
    assert "leader=-2" in shown
    assert not any(word.startswith("leader=") and word != "leader=-2" for word in shown)

    cluster.start(3)
    assert {each.broker for each in cluster.to_delete} == {2, 3}
    cluster.answer_deletes()
    assert cluster.context.topics_ineligible_for_deletion == {"t": None}
    assert not is_gone(cluster)

    cluster.start(1)
    assert {each.broker for each in cluster.to_delete} == {1}
    cluster.answer_deletes()
    assert is_gone(cluster)
    assert not cluster.failures


class ControllerDied(Exception):
    pass


def test_whenever_the_controller_dies_the_next_one_finishes() -> None:
    for steps in range(100):
        cluster = cluster_with((1, 2), (2, 3), (4, 1))
        left = steps

        def die(step: Step) -> None:
            nonlocal left
            if left == 0:
                raise ControllerDied
            left -= 1

        cluster.before_step = die
        try:
            cluster.delete("t")
            cluster.answer_deletes(1, 2)
            cluster.start(4)
            cluster.answer_deletes()
        except ControllerDied:
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
def test_znodes_that_are_gone_already_are_no_obstacle(lost: tuple[TopicPartition, ...]) -> None:
    cluster = cluster_with((1, 2), (2, 3))
    cluster.marked_for_deletion = ["t"]
    for partition in lost:
        del cluster.znodes.states[partition]
    cluster.fail_over(BrokerId(2))
    assert set(cluster.to_delete) == set(cluster.context.replicas_of((T0, T1)))
    cluster.answer_deletes()
    assert is_gone(cluster)
    assert not cluster.failures


def test_a_new_controller_deletes_what_the_old_one_was_asked_for() -> None:
    cluster = cluster_with((1, 2))
    cluster.topics["u"] = {0: held(1)}
    cluster.marked_for_deletion = ["t"]
    cluster.fail_over(BrokerId(2))
    assert set(cluster.to_delete) == {replica(T0, 1), replica(T0, 2)}
    cluster.answer_deletes()
    assert is_gone(cluster)
    assert not is_gone(cluster, "u")
