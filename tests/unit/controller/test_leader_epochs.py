"""By how much the leader epoch rises, told by the znodes: brokers and tests of other systems count on it."""

from __future__ import annotations

from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.model import BrokerId
from tests.unit.controller.cluster import SimulatedCluster, ids, replica


def test_the_death_of_a_leader_that_is_not_the_controller_costs_one() -> None:
    cluster = SimulatedCluster(1, 2, 3, controller=1)
    (tp,) = cluster.create("t", (2, 3, 1))
    cluster.kill(2)
    after = cluster.znodes.states[tp]
    assert (after.leader, after.isr, after.leader_epoch) == (3, ids(3, 1), 1)


def test_the_controlled_shutdown_of_a_leader_costs_one_and_its_leaving_nothing_more() -> None:
    cluster = SimulatedCluster(1, 2, 3, controller=1)
    (tp,) = cluster.create("t", (2, 3, 1))
    cluster.shut_down(2)
    assert cluster.leader_epoch(tp) == 1
    assert cluster.znodes.states[tp].isr == ids(3, 1)
    cluster.kill(2)
    assert cluster.leader_epoch(tp) == 1


def test_a_leader_that_dies_together_with_its_controllership_costs_two() -> None:
    cluster = SimulatedCluster(1, 2, 3, controller=1)
    (tp,) = cluster.create("t", (1, 2, 3))
    del cluster.registered[BrokerId(1)]
    cluster.fail_over(BrokerId(2))
    after = cluster.znodes.states[tp]
    assert (after.leader, after.isr, after.leader_epoch) == (2, ids(2, 3), 2)
    assert after.controller_epoch == 2


def test_the_death_of_a_follower_in_the_isr_costs_one() -> None:
    cluster = SimulatedCluster(1, 2, 3)
    (tp,) = cluster.create("t", (2, 3, 1))
    cluster.kill(3)
    after = cluster.znodes.states[tp]
    assert (after.leader, after.isr, after.leader_epoch) == (2, ids(2, 1), 1)


def test_the_death_of_a_follower_out_of_sync_costs_nothing() -> None:
    cluster = SimulatedCluster(1, 2, 3)
    (tp,) = cluster.create("t", (2, 3, 1))
    cluster.catch_up(tp, 2, 1)
    version = cluster.znodes.states[tp].partition_epoch
    cluster.kill(3)
    after = cluster.znodes.states[tp]
    assert (after.leader_epoch, after.partition_epoch) == (0, version)
    assert cluster.context.replica_state(replica(tp, 3)) is ReplicaState.OFFLINE


def test_a_leader_changing_its_isr_moves_the_version_alone() -> None:
    cluster = SimulatedCluster(1, 2, 3)
    (tp,) = cluster.create("t", (2, 3, 1))
    cluster.catch_up(tp, 2)
    assert cluster.leader_epoch(tp) == 0
    assert cluster.znodes.states[tp].partition_epoch == 1


def test_a_reassignment_with_both_brokers_up_costs_three() -> None:
    cluster = SimulatedCluster(1, 2)
    (tp,) = cluster.create("t", (1,))
    cluster.begin_reassignment(tp, 2)
    cluster.catch_up(tp, 1, 2)
    cluster.finish_reassignment(tp)
    after = cluster.znodes.states[tp]
    assert (after.leader, after.isr, after.leader_epoch) == (2, ids(2), 3)
    assert cluster.context.replicas(tp) == ids(2)


def test_a_reassignment_to_a_broker_that_is_down_at_first_costs_four() -> None:
    cluster = SimulatedCluster(1, 2)
    (tp,) = cluster.create("t", (1,))
    cluster.kill(2)
    cluster.begin_reassignment(tp, 2)
    cluster.start(2)
    cluster.bump_epoch(tp)  # its start resumes the reassignment, which begins with phase A again
    cluster.catch_up(tp, 1, 2)
    cluster.finish_reassignment(tp)
    assert cluster.leader_epoch(tp) == 4


def test_a_preferred_election_costs_one() -> None:
    cluster = SimulatedCluster(1, 2, 3, controller=1)
    (tp,) = cluster.create("t", (2, 3, 1))
    cluster.kill(2)
    cluster.start(2)
    cluster.catch_up(tp, 3, 1, 2)
    before = cluster.leader_epoch(tp)
    cluster.elect_preferred_leaders(tp)
    after = cluster.znodes.states[tp]
    assert (after.leader, after.isr, after.leader_epoch) == (2, ids(3, 1, 2), before + 1)


def test_the_last_member_of_the_isr_stays_in_it_and_nobody_leads() -> None:
    cluster = SimulatedCluster(1, 2, controller=1)
    (tp,) = cluster.create("t", (2,))
    cluster.kill(2)
    after = cluster.znodes.states[tp]
    assert (after.leader, after.isr, after.leader_epoch) == (-1, ids(2), 1)
    assert cluster.context.partition_state(tp) is PartitionState.OFFLINE
    cluster.start(2)
    back = cluster.znodes.states[tp]
    assert (back.leader, back.isr, back.leader_epoch) == (2, ids(2), 2)


def test_two_brokers_that_die_at_once_cost_an_election_and_nothing_for_who_was_elected_out() -> (
    None
):
    cluster = SimulatedCluster(1, 2, 3, 4)
    leading, following = cluster.create("t", (2, 3, 4), (4, 2, 3))
    cluster.kill(2, 3)
    led = cluster.znodes.states[leading]
    assert (led.leader, led.isr, led.leader_epoch) == (4, ids(4), 1)
    followed = cluster.znodes.states[following]
    assert (followed.leader, followed.isr, followed.leader_epoch) == (4, ids(4), 2)


def test_a_bounce_costs_what_a_death_costs() -> None:
    cluster = SimulatedCluster(1, 2, 3)
    (tp,) = cluster.create("t", (2, 3, 1))
    cluster.register(2)
    cluster.process_broker_changes()
    after = cluster.znodes.states[tp]
    assert (after.leader, after.isr, after.leader_epoch) == (3, ids(3, 1), 1)
    assert cluster.context.replica_state(replica(tp, 2)) is ReplicaState.ONLINE
