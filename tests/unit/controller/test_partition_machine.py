"""Partitions get their first leader, and another when that is gone."""

from __future__ import annotations

import pytest

from barnabas.controller import partition_machine
from barnabas.controller.decision import (
    CreateState,
    FailureReason,
    SendLeaderAndIsr,
    UnreadableState,
    UpdateState,
)
from barnabas.controller.elections import Strategy
from barnabas.controller.states import PartitionState
from barnabas.model import BrokerId, LeaderAndIsr, TopicPartition
from tests.unit.controller.cluster import CAUSE, SimulatedCluster, ids, state, summarize

TP = TopicPartition("t", 0)


def offline(
    *isr: int, replicas: tuple[int, ...] = (2, 3), up: tuple[int, ...] = (1, 2, 3)
) -> SimulatedCluster:
    """A partition whose state says `isr`, of which nobody leads."""
    cluster = SimulatedCluster(1, 2, 3)
    cluster.create("t", replicas)
    cluster.context.set_partition_state(TP, PartitionState.OFFLINE)
    cluster.znodes.states[TP] = state(-1, isr, epoch=4, version=9)
    cluster.context.remove_brokers([each for each in ids(1, 2, 3) if each not in up])
    cluster.take_sent()
    cluster.failures.clear()
    return cluster


def test_the_first_state_has_the_first_online_replica_lead_and_all_online_in_sync() -> None:
    cluster = SimulatedCluster(1, 3)
    cluster.create("t", (2, 3, 1))
    assert cluster.znodes.states[TP] == state(3, [3, 1])
    assert isinstance(cluster.znodes.written[0], CreateState)
    assert cluster.context.leadership[TP] == state(3, [3, 1])
    assert cluster.context.partition_state(TP) is PartitionState.ONLINE
    assert summarize(cluster.sent[2:]) == [
        "LAI 1 t-0 leader=3 epoch=0 isr=3,1 new",
        "LAI 3 t-0 leader=3 epoch=0 isr=3,1 new",
        "UM 1 t-0 leader=3",
        "UM 3 t-0 leader=3",
    ]


def test_a_broker_that_shuts_down_is_not_in_the_first_isr() -> None:
    cluster = SimulatedCluster(1, 2)
    cluster.context.shutting_down_broker_ids.add(BrokerId(1))
    cluster.create("t", (1, 2))
    assert cluster.znodes.states[TP] == state(2, [2])


def test_a_partition_without_an_online_replica_stays_new_until_one_starts() -> None:
    cluster = SimulatedCluster(1)
    cluster.create("t", (2, 3))
    (failure,) = cluster.failures
    assert failure.reason is FailureReason.NO_LIVE_REPLICA
    assert cluster.context.partition_state(TP) is PartitionState.NEW
    cluster.start(3)
    assert cluster.znodes.states[TP] == state(3, [3])


def test_a_state_that_is_there_already_is_not_written_over() -> None:
    cluster = SimulatedCluster(1, 2)
    cluster.znodes.states[TP] = state(2, [2], epoch=7)
    cluster.create("t", (1, 2))
    assert [each.reason for each in cluster.failures] == [FailureReason.STATE_EXISTS]
    assert cluster.context.partition_state(TP) is PartitionState.NEW
    assert cluster.znodes.states[TP] == state(2, [2], epoch=7)


def test_one_bad_partition_does_not_fail_its_neighbours() -> None:
    cluster = SimulatedCluster(1, 2)
    cluster.znodes.states[TopicPartition("t", 1)] = state(2, [2], epoch=7)
    cluster.create("t", (1, 2), (2, 1), (9,), (1,))
    states = [cluster.context.partition_state(TopicPartition("t", i)) for i in range(4)]
    online, new = PartitionState.ONLINE, PartitionState.NEW
    assert states == [online, new, new, online]


def test_an_election_writes_on_what_was_read_and_raises_the_epoch() -> None:
    cluster = offline(3, 2)
    cluster.znodes.written.clear()
    cluster.move_partitions((TP,), PartitionState.ONLINE, Strategy.OFFLINE)
    (written,) = cluster.znodes.written
    assert isinstance(written, UpdateState)
    assert written.expected_version == 9
    assert cluster.znodes.states[TP] == state(2, [3, 2], epoch=5, version=10)
    assert cluster.context.leadership[TP] == state(2, [3, 2], epoch=5, version=10)
    assert summarize(cluster.sent) == [
        "LAI 2 t-0 leader=2 epoch=5 isr=3,2",
        "LAI 3 t-0 leader=2 epoch=5 isr=3,2",
        "UM 1 t-0 leader=2",
        "UM 2 t-0 leader=2",
        "UM 3 t-0 leader=2",
    ]


def test_an_election_of_the_same_leader_raises_the_epoch_too() -> None:
    cluster = SimulatedCluster(1, 2)
    (tp,) = cluster.create("t", (1, 2))
    cluster.elect_preferred_leaders(tp)
    assert cluster.znodes.states[tp] == state(1, [1, 2], epoch=1, version=1)


def test_a_lost_race_is_read_and_decided_again_and_announced_once() -> None:
    cluster = offline(2, 3, up=(1, 2, 3))
    cluster.znodes.before_commit.append(lambda: cluster.znodes.change_isr(TP, 3))
    cluster.move_partitions((TP,), PartitionState.ONLINE, Strategy.OFFLINE)
    assert cluster.znodes.states[TP] == state(3, [3], epoch=5, version=11)
    assert summarize(cluster.sent)[:2] == [
        "LAI 2 t-0 leader=3 epoch=5 isr=3",
        "LAI 3 t-0 leader=3 epoch=5 isr=3",
    ]
    assert cluster.failures == []


def test_nobody_in_sync_online_leaves_it_as_it_is() -> None:
    cluster = offline(1, replicas=(1, 2, 3), up=(2, 3))
    cluster.move_partitions((TP,), PartitionState.ONLINE, Strategy.OFFLINE)
    (failure,) = cluster.failures
    assert failure.reason is FailureReason.NO_ELIGIBLE_LEADER
    assert "ISR 1, online 2,3" in failure.why
    assert cluster.context.partition_state(TP) is PartitionState.OFFLINE
    assert cluster.sent == []


def test_a_topic_that_allows_it_is_led_by_somebody_out_of_sync_who_must_recover() -> None:
    cluster = offline(1, replicas=(1, 2, 3), up=(2, 3))
    cluster.unclean["t"] = True
    cluster.move_partitions((TP,), PartitionState.ONLINE, Strategy.OFFLINE)
    assert cluster.znodes.states[TP] == state(2, [2], epoch=5, version=10, recovering=True)


def test_an_administrator_may_force_it() -> None:
    cluster = offline(1, replicas=(1, 2, 3), up=(2, 3))
    cluster.move_partitions((TP,), PartitionState.ONLINE, Strategy.OFFLINE_UNCLEAN)
    assert cluster.znodes.states[TP] == state(2, [2], epoch=5, version=10, recovering=True)


def test_of_two_elections_the_unclean_one_is_marked() -> None:
    clean, unclean = state(-1, [2], epoch=4, version=9), state(-1, [1], epoch=4, version=9)
    for before, is_unclean in ((clean, False), (unclean, True)):
        cluster = offline(1, replicas=(1, 2, 3), up=(2, 3))
        decided = partition_machine.decide_partition_transitions(
            cluster.context,
            (TP,),
            PartitionState.ONLINE,
            cause="",
            strategy=Strategy.OFFLINE,
            states={TP: before},
            unclean={"t": True},
        )
        assert [each.is_unclean for each in decided.transitions] == [is_unclean]


def test_a_clean_election_leaves_the_recovery_to_go_on() -> None:
    cluster = offline(2)
    cluster.znodes.states[TP] = state(-1, [2], epoch=4, version=9, recovering=True)
    cluster.move_partitions((TP,), PartitionState.ONLINE, Strategy.OFFLINE)
    assert cluster.znodes.states[TP].recovering


def test_a_replica_that_is_no_longer_assigned_keeps_the_isr_but_cannot_win_it() -> None:
    cluster = offline(1)
    cluster.unclean["t"] = True
    cluster.move_partitions((TP,), PartitionState.ONLINE, Strategy.OFFLINE)
    assert [each.reason for each in cluster.failures] == [FailureReason.NO_ELIGIBLE_LEADER]
    cluster.znodes.states[TP] = state(-1, [1, 3], epoch=4, version=9)
    cluster.move_partitions((TP,), PartitionState.ONLINE, Strategy.OFFLINE)
    assert cluster.znodes.states[TP] == state(3, [1, 3], epoch=5, version=10)


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (None, FailureReason.STATE_MISSING),
        (UnreadableState(why="not JSON"), FailureReason.STATE_UNREADABLE),
        (state(2, [2], controller_epoch=2), FailureReason.CONTROLLER_MOVED),
        (state(-1, [1]), FailureReason.CONFIG_UNKNOWN),
    ],
)
def test_what_cannot_be_elected_on_fails(
    read: LeaderAndIsr | UnreadableState | None, reason: FailureReason
) -> None:
    cluster = offline(2, 3, replicas=(1, 2, 3), up=(2, 3))
    decision = partition_machine.decide_partition_transitions(
        cluster.context,
        [TP],
        PartitionState.ONLINE,
        cause=CAUSE,
        strategy=Strategy.OFFLINE,
        states={} if read is None else {TP: read},
    )
    assert decision.transitions == ()
    assert [each.reason for each in decision.failures] == [reason]
    assert decision.outcome_of({}).has_newer_controller == (
        reason is FailureReason.CONTROLLER_MOVED
    )


def test_an_election_without_a_strategy_is_a_bug() -> None:
    cluster = offline(2, 3)
    with pytest.raises(AssertionError):
        partition_machine.decide_partition_transitions(
            cluster.context, [TP], PartitionState.ONLINE, cause=CAUSE
        )


def test_only_those_that_elect_are_read_and_only_topics_without_anybody_in_sync_are_asked() -> None:
    cluster = SimulatedCluster(1, 2)
    one, two = cluster.create("t", (1, 2), (2,))
    online = PartitionState.ONLINE
    assert partition_machine.states_for_elections(cluster.context, (one, two), online) == (one, two)
    assert (
        partition_machine.states_for_elections(cluster.context, (one,), PartitionState.OFFLINE)
        == ()
    )
    cluster.context.set_partition_state(one, PartitionState.NEW)
    assert partition_machine.states_for_elections(cluster.context, (one, two), online) == (two,)
    asked = partition_machine.topics_for_unclean_check
    assert asked(cluster.context, cluster.read((one, two))) == ()
    cluster.context.remove_brokers(ids(2))
    assert asked(cluster.context, cluster.read((one, two))) == ("t",)
    assert asked(cluster.context, {one: UnreadableState(why="")}) == ()


def test_a_move_touches_nothing_and_names_its_cause() -> None:
    cluster = offline(2, 3)
    decision = partition_machine.decide_partition_transitions(
        cluster.context,
        [TP, TP],
        PartitionState.ONLINE,
        cause="BrokersChanged#7",
        strategy=Strategy.OFFLINE,
        states=cluster.read((TP,)),
    )
    (move,) = decision.transitions
    assert move.cause == "BrokersChanged#7"
    assert move.requests == (SendLeaderAndIsr(brokers=ids(2, 3), partition=TP, is_new=False),)
    assert cluster.context.partition_state(TP) is PartitionState.OFFLINE
    assert cluster.context.leadership[TP].leader_epoch == 0


def test_what_has_moved_meanwhile_is_not_applied() -> None:
    cluster = offline(2, 3)
    decision = partition_machine.decide_partition_transitions(
        cluster.context, [TP], PartitionState.NON_EXISTENT, cause=CAUSE
    )
    cluster.context.set_partition_state(TP, PartitionState.ONLINE)
    with pytest.raises(AssertionError, match="is not in"):
        partition_machine.apply_partition_transitions(
            cluster.context, decision.outcome_of({}).committed
        )
