"""Derived sets and indexes of the controller context."""

from __future__ import annotations

import tracemalloc
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.controller.context import ControllerContext
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.errors import RegistryError
from barnabas.metadata.znodes import ReplicaAssignment
from barnabas.model import BrokerEpoch, BrokerId, Replica, TopicPartition
from tests.unit.controller.cluster import broker, ids, replica, replica_assignment, state

A, B, C = (TopicPartition("t", index) for index in range(3))
D = TopicPartition("u", 0)


def context(*brokers: int) -> ControllerContext:
    made = ControllerContext()
    for number in brokers:
        made.set_broker(broker(number), BrokerEpoch(number))
    return made


def with_partitions() -> ControllerContext:
    made = context(1, 2, 3)
    made.add_topic("t", UUID(int=1))
    made.add_topic("u", UUID(int=2))
    for tp, replicas, leader in ((A, (1, 2), 1), (B, (2, 3), 2), (C, (3,), 3), (D, (1, 3), 1)):
        made.set_assignment(tp, replica_assignment(*replicas))
        made.set_leadership(tp, state(leader, replicas))
    return made


def test_shutting_down_broker_is_registered_but_not_live() -> None:
    made = context(3, 1, 2)
    made.shutting_down_broker_ids.add(BrokerId(2))
    assert [each for each in (1, 2, 3) if made.is_live(BrokerId(each))] == [1, 3]
    assert made.live_or_shutting_down_broker_ids == ids(1, 2, 3)
    assert not made.is_replica_online(BrokerId(2), A)
    assert made.is_replica_online(BrokerId(2), A, include_shutting_down_brokers=True)


def test_only_replica_on_offline_dir_is_offline() -> None:
    made = with_partitions()
    made.set_replica_dir_offline(replica(A, 1), offline=True)
    assert not made.is_replica_online(BrokerId(1), A)
    assert made.is_replica_online(BrokerId(1), D)
    assert made.online_replicas(A) == ids(2)
    assert made.partitions_with_offline_leader == (A,)
    online, offline = made.online_and_offline_replicas()
    assert offline == (replica(A, 1),)
    assert len(online) == 6
    made.set_replica_dir_offline(replica(A, 1), offline=False)
    assert made.replicas_on_offline_dirs == {}
    made.set_replica_dir_offline(replica(A, 1), offline=False)


def test_missing_or_dead_leader_is_an_offline_leader() -> None:
    made = with_partitions()
    assert made.partitions_with_offline_leader == ()
    made.remove_brokers(ids(2))
    made.set_leadership(C, state(-1, [3], epoch=1))
    assert set(made.partitions_with_offline_leader) == {B, C}
    made.shutting_down_broker_ids.add(BrokerId(1))
    assert set(made.partitions_with_offline_leader) == {A, B, C, D}


def test_topics_queued_for_deletion_are_skipped() -> None:
    made = with_partitions()
    assert set(made.partitions_with_leaders) == {A, B, C, D}
    made.queue_topic_deletion(["t"])
    made.remove_brokers(ids(1, 2, 3))
    assert made.partitions_with_leaders == (D,)
    assert made.partitions_with_offline_leader == (D,)
    assert made.partition_leaders_on_broker(BrokerId(1)) == (D,)
    assert made.leader_epoch(A) == -2


def test_single_replica_partition_is_not_handed_over() -> None:
    made = with_partitions()
    assert set(made.partition_leaders_on_broker(BrokerId(1))) == {A, D}
    assert made.partition_leaders_on_broker(BrokerId(3)) == ()
    assert made.partition_leaders_on_broker(BrokerId(9)) == ()


def test_leader_epoch_for_stop_replica() -> None:
    made = with_partitions()
    made.set_leadership(A, state(1, [1], epoch=7))
    assert made.leader_epoch(A) == 7
    assert made.leader_epoch(TopicPartition("t", 9)) == -1


def test_replicas_by_broker_and_by_partition() -> None:
    made = with_partitions()
    assert set(made.partitions_on_broker(BrokerId(3))) == {B, C, D}
    assert set(made.replicas_on_brokers(ids(3, 9))) == {replica(tp, 3) for tp in (B, C, D)}
    assert made.replicas_of([A, B]) == (
        replica(A, 1),
        replica(A, 2),
        replica(B, 2),
        replica(B, 3),
    )
    assert made.partitions_of("t") == (A, B, C)
    assert made.partitions_of("nothing") == ()
    assert made.all_partitions == (A, B, C, D)


def test_partitions_are_found_by_state() -> None:
    made = with_partitions()
    made.set_partition_state(A, PartitionState.NEW)
    made.set_partition_state(B, PartitionState.ONLINE)
    made.set_partition_state(D, PartitionState.OFFLINE)
    new, offline = PartitionState.NEW, PartitionState.OFFLINE
    assert made.partitions_in_states(new, offline) == (A, D)
    made.set_partition_state(D, PartitionState.NON_EXISTENT)
    assert made.partitions_in_states(new, offline) == (A,)
    assert made.partition_state(D) is PartitionState.NON_EXISTENT


def test_replicas_of_topic_by_state() -> None:
    made = with_partitions()
    started, done = ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL
    for each in made.replicas_of(made.partitions_of("t")):
        made.set_replica_state(each, done)
    assert made.are_all_replicas_in_state("t", done)
    assert not made.is_any_replica_in_state("t", started)
    made.set_replica_state(replica(B, 2), started)
    assert not made.are_all_replicas_in_state("t", done)
    assert made.replicas_in_state("t", started) == (replica(B, 2),)
    assert made.are_all_replicas_in_state("without partitions", done)


def test_only_queued_topic_can_be_ineligible() -> None:
    made = with_partitions()
    made.mark_ineligible_for_deletion(["t"])
    assert made.topics_ineligible_for_deletion == {}
    made.queue_topic_deletion(["t", "u"])
    made.mark_ineligible_for_deletion(["t"])
    assert not made.is_topic_eligible_for_deletion("t")
    assert made.is_topic_eligible_for_deletion("u")
    assert made.is_topic_queued_for_deletion("t")


def test_removed_topic_leaves_no_state() -> None:
    made = with_partitions()
    for tp in made.all_partitions:
        made.set_partition_state(tp, PartitionState.ONLINE)
        for each in made.replicas_of([tp]):
            made.set_replica_state(each, ReplicaState.ONLINE)
    made.set_replica_dir_offline(replica(A, 1), offline=True)
    made.partitions_being_reassigned[A] = None
    made.queue_topic_deletion(["t"])
    made.mark_ineligible_for_deletion(["t"])
    made.topics_with_deletion_started["t"] = None
    made.remove_topic("t")
    made.remove_topic("u")
    fresh = context(1, 2, 3)
    assert vars(made) == vars(fresh)
    made.reset()
    assert vars(made) == vars(ControllerContext())


def test_topic_ids_are_unique() -> None:
    made = context()
    made.add_topic("t", UUID(int=1))
    made.add_topic("t", UUID(int=1))
    with pytest.raises(RegistryError, match="/brokers/topics/t"):
        made.add_topic("t", UUID(int=2))
    with pytest.raises(RegistryError, match="belongs to topic t"):
        made.add_topic("u", UUID(int=1))
    assert made.all_topics == {"t": None}


partitions = st.sampled_from([A, B, C, D])
brokers = st.integers(1, 4).map(BrokerId)
replica_lists = st.lists(brokers, unique=True, max_size=4).map(tuple)
changes = st.one_of(
    st.tuples(st.just("assign"), partitions, replica_lists),
    st.tuples(st.just("lead"), partitions, st.integers(-1, 4)),
    st.tuples(st.just("state"), partitions, st.sampled_from(PartitionState)),
    st.tuples(st.just("forget"), partitions, st.none()),
    st.tuples(st.just("remove"), partitions, st.none()),
    st.tuples(st.just("leave"), brokers, st.none()),
    st.tuples(st.just("join"), brokers, st.none()),
    st.tuples(st.just("shut down"), brokers, st.none()),
    st.tuples(st.just("break"), partitions, brokers),
    st.tuples(st.just("delete"), partitions, st.none()),
)


@settings(max_examples=150)
@given(st.lists(changes, max_size=40))
def test_indexes_agree_with_full_scan(
    history: list[tuple[str, object, object]],
) -> None:
    made = context(1, 2, 3, 4)
    for change in history:
        apply_change(made, change)
    expected = {
        each: {tp for tp in made.all_partitions if each in made.replicas(tp)}
        for each in range(1, 5)
    }
    assert {each: set(made.partitions_on_broker(BrokerId(each))) for each in expected} == expected
    assert set(made.partitions_with_offline_leader) == {
        tp
        for tp, known in made.leadership.items()
        if not made.is_replica_online(known.leader, tp)
        and tp.topic not in made.topics_to_be_deleted
    }
    for each in ids(1, 2, 3, 4):
        assert set(made.partition_leaders_on_broker(each)) == {
            tp
            for tp, known in made.leadership.items()
            if known.leader == each
            and len(made.replicas(tp)) > 1
            and tp.topic not in made.topics_to_be_deleted
        }
    for wanted in PartitionState:
        if wanted is not PartitionState.NON_EXISTENT:
            there = made.partitions_in_states(wanted)
            assert {made.partition_state(tp) for tp in there} <= {wanted}
            assert set(there) >= {
                tp for tp in made.all_partitions if made.partition_state(tp) is wanted
            }
    online, offline = made.online_and_offline_replicas()
    assert set(online) | set(offline) == set(made.replicas_of(made.all_partitions))
    assert all(made.is_replica_online(each.broker, each.partition) for each in online)
    assert not any(made.is_replica_online(each.broker, each.partition) for each in offline)


def apply_change(made: ControllerContext, change: tuple[str, object, object]) -> None:
    match change:
        case "assign", TopicPartition() as tp, tuple() as replicas:
            made.set_assignment(tp, ReplicaAssignment(replicas=replicas))
        case "lead", TopicPartition() as tp, int() as leader:
            made.set_leadership(tp, state(leader, [max(leader, 1)]))
        case "state", TopicPartition() as tp, PartitionState() as wanted:
            made.set_partition_state(tp, wanted)
        case "forget", TopicPartition() as tp, None:
            made.remove_leadership(tp)
        case "remove", TopicPartition() as tp, None:
            made.remove_topic(tp.topic)
        case "leave", int() as number, None:
            made.remove_brokers(ids(number))
        case "join", int() as number, None:
            made.set_broker(broker(number), BrokerEpoch(1))
        case "shut down", int() as number, None:
            made.shutting_down_broker_ids ^= {BrokerId(number)}
        case "break", TopicPartition() as tp, int() as number:
            made.set_replica_dir_offline(replica(tp, number), offline=True)
        case "delete", TopicPartition() as tp, None:
            made.queue_topic_deletion([tp.topic])
        case _:
            raise AssertionError(change)


def test_ten_thousand_partitions_take_less_than_50_mb() -> None:
    tracemalloc.start()
    made = context(1, 2, 3)
    for topic in range(1_000):
        name = f"topic-{topic:04}"
        made.add_topic(name, UUID(int=topic))
        for index in range(10):
            # As read from a registry: every value is a separate object.
            tp = TopicPartition(name, index)
            made.set_assignment(tp, replica_assignment(1, 2, 3))
            made.set_leadership(tp, state(1 + index % 3, [1, 2, 3], epoch=1_000 + topic))
            made.set_partition_state(tp, PartitionState.ONLINE)
            for number in (1, 2, 3):
                made.set_replica_state(Replica(tp, BrokerId(number)), ReplicaState.ONLINE)
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{size_bytes / 1e6:.1f} MB for {len(made.all_partitions)} partitions")
    assert len(made.all_partitions) == 10_000
    assert size_bytes < 50_000_000
