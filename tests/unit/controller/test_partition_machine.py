"""Partition state machine: first leaders and leader elections."""

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


def offline_partition(
    *isr: int, replicas: tuple[int, ...] = (2, 3), up: tuple[int, ...] = (1, 2, 3)
) -> SimulatedCluster:
    """Partition without a leader whose state znode has the given ISR."""
    cluster = SimulatedCluster(1, 2, 3)
    cluster.create("t", replicas)
    cluster.context.set_partition_state(TP, PartitionState.OFFLINE)
    cluster.znodes.states[TP] = state(-1, isr, epoch=4, version=9)
    cluster.context.remove_brokers([each for each in ids(1, 2, 3) if each not in up])
    cluster.take_sent()
    cluster.failures.clear()
    return cluster


def test_first_state_has_online_replicas_in_isr() -> None:
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


def test_shutting_down_broker_is_not_in_first_isr() -> None:
    cluster = SimulatedCluster(1, 2)
    cluster.context.shutting_down_broker_ids.add(BrokerId(1))
    cluster.create("t", (1, 2))
    assert cluster.znodes.states[TP] == state(2, [2])


def test_partition_stays_new_until_a_replica_is_online() -> None:
    cluster = SimulatedCluster(1)
    cluster.create("t", (2, 3))
    (failure,) = cluster.failures
    assert failure.reason is FailureReason.NO_LIVE_REPLICA
    assert cluster.context.partition_state(TP) is PartitionState.NEW
    cluster.start(3)
    assert cluster.znodes.states[TP] == state(3, [3])


def test_existing_state_is_not_overwritten() -> None:
    cluster = SimulatedCluster(1, 2)
    cluster.znodes.states[TP] = state(2, [2], epoch=7)
    cluster.create("t", (1, 2))
    assert [each.reason for each in cluster.failures] == [FailureReason.STATE_EXISTS]
    assert cluster.context.partition_state(TP) is PartitionState.NEW
    assert cluster.znodes.states[TP] == state(2, [2], epoch=7)


def test_failed_partition_does_not_affect_others() -> None:
    cluster = SimulatedCluster(1, 2)
    cluster.znodes.states[TopicPartition("t", 1)] = state(2, [2], epoch=7)
    cluster.create("t", (1, 2), (2, 1), (9,), (1,))
    states = [cluster.context.partition_state(TopicPartition("t", i)) for i in range(4)]
    online, new = PartitionState.ONLINE, PartitionState.NEW
    assert states == [online, new, new, online]


def test_election_updates_read_version_and_raises_epoch() -> None:
    cluster = offline_partition(3, 2)
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


def test_reelection_of_same_leader_raises_epoch() -> None:
    cluster = SimulatedCluster(1, 2)
    (tp,) = cluster.create("t", (1, 2))
    cluster.elect_preferred_leaders(tp)
    assert cluster.znodes.states[tp] == state(1, [1, 2], epoch=1, version=1)


def test_lost_race_is_decided_again_and_announced_once() -> None:
    cluster = offline_partition(2, 3, up=(1, 2, 3))
    cluster.znodes.before_commit.append(lambda: cluster.znodes.change_isr(TP, 3))
    cluster.move_partitions((TP,), PartitionState.ONLINE, Strategy.OFFLINE)
    assert cluster.znodes.states[TP] == state(3, [3], epoch=5, version=11)
    assert summarize(cluster.sent)[:2] == [
        "LAI 2 t-0 leader=3 epoch=5 isr=3",
        "LAI 3 t-0 leader=3 epoch=5 isr=3",
    ]
    assert cluster.failures == []


def test_partition_stays_offline_without_online_in_sync_replica() -> None:
    cluster = offline_partition(1, replicas=(1, 2, 3), up=(2, 3))
    cluster.move_partitions((TP,), PartitionState.ONLINE, Strategy.OFFLINE)
    (failure,) = cluster.failures
    assert failure.reason is FailureReason.NO_ELIGIBLE_LEADER
    assert "ISR 1, online 2,3" in failure.why
    assert cluster.context.partition_state(TP) is PartitionState.OFFLINE
    assert cluster.sent == []


def test_unclean_topic_elects_out_of_sync_leader_in_recovery() -> None:
    cluster = offline_partition(1, replicas=(1, 2, 3), up=(2, 3))
    cluster.unclean["t"] = True
    cluster.move_partitions((TP,), PartitionState.ONLINE, Strategy.OFFLINE)
    assert cluster.znodes.states[TP] == state(2, [2], epoch=5, version=10, recovering=True)


def test_forced_unclean_election() -> None:
    cluster = offline_partition(1, replicas=(1, 2, 3), up=(2, 3))
    cluster.move_partitions((TP,), PartitionState.ONLINE, Strategy.OFFLINE_UNCLEAN)
    assert cluster.znodes.states[TP] == state(2, [2], epoch=5, version=10, recovering=True)


def test_unclean_election_is_marked() -> None:
    clean, unclean = state(-1, [2], epoch=4, version=9), state(-1, [1], epoch=4, version=9)
    for before, is_unclean in ((clean, False), (unclean, True)):
        cluster = offline_partition(1, replicas=(1, 2, 3), up=(2, 3))
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


def test_clean_election_keeps_recovery_state() -> None:
    cluster = offline_partition(2)
    cluster.znodes.states[TP] = state(-1, [2], epoch=4, version=9, recovering=True)
    cluster.move_partitions((TP,), PartitionState.ONLINE, Strategy.OFFLINE)
    assert cluster.znodes.states[TP].recovering


def test_unassigned_replica_stays_in_isr_but_is_not_elected() -> None:
    cluster = offline_partition(1)
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
def test_election_fails_without_valid_state_or_config(
    read: LeaderAndIsr | UnreadableState | None, reason: FailureReason
) -> None:
    cluster = offline_partition(2, 3, replicas=(1, 2, 3), up=(2, 3))
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


def test_election_without_strategy_is_an_assertion_error() -> None:
    cluster = offline_partition(2, 3)
    with pytest.raises(AssertionError):
        partition_machine.decide_partition_transitions(
            cluster.context, [TP], PartitionState.ONLINE, cause=CAUSE
        )


def test_only_needed_states_and_configs_are_read() -> None:
    cluster = SimulatedCluster(1, 2)
    one, two = cluster.create("t", (1, 2), (2,))
    online = PartitionState.ONLINE
    to_read = partition_machine.partitions_for_elections
    assert to_read(cluster.context, (one, two), online) == (one, two)
    assert to_read(cluster.context, (one,), PartitionState.OFFLINE) == ()
    cluster.context.set_partition_state(one, PartitionState.NEW)
    assert to_read(cluster.context, (one, two), online) == (two,)
    configs_to_read = partition_machine.topics_for_unclean_check
    assert configs_to_read(cluster.context, cluster.read((one, two))) == ()
    cluster.context.remove_brokers(ids(2))
    assert configs_to_read(cluster.context, cluster.read((one, two))) == ("t",)
    assert configs_to_read(cluster.context, {one: UnreadableState(why="")}) == ()


def test_move_has_no_side_effect_and_names_its_cause() -> None:
    cluster = offline_partition(2, 3)
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


def test_concurrently_changed_partition_is_not_applied() -> None:
    cluster = offline_partition(2, 3)
    decision = partition_machine.decide_partition_transitions(
        cluster.context, [TP], PartitionState.NON_EXISTENT, cause=CAUSE
    )
    cluster.context.set_partition_state(TP, PartitionState.ONLINE)
    with pytest.raises(AssertionError, match="is not in"):
        partition_machine.apply_partition_transitions(
            cluster.context, decision.outcome_of({}).committed
        )
