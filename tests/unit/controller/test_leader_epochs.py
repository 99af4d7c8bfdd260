"""Increments of the leader epoch, as seen in the znodes. Brokers and tests of other systems rely on
them.
"""

from __future__ import annotations

from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.model import BrokerId
from tests.unit.controller.cluster import SimulatedCluster, ids, replica


def test_leader_failure_costs_one_epoch() -> None:
    cluster = SimulatedCluster(1, 2, 3, controller=1)
    (tp,) = cluster.create("t", (2, 3, 1))
    cluster.kill(2)
    after = cluster.znodes.states[tp]
    assert (after.leader, after.isr, after.leader_epoch) == (3, ids(3, 1), 1)


def test_controlled_shutdown_of_leader_costs_one_epoch() -> None:
    cluster = SimulatedCluster(1, 2, 3, controller=1)
    (tp,) = cluster.create("t", (2, 3, 1))
    cluster.shut_down(2)
    assert cluster.leader_epoch(tp) == 1
    assert cluster.znodes.states[tp].isr == ids(3, 1)
    cluster.kill(2)
    assert cluster.leader_epoch(tp) == 1


def test_failure_of_leader_and_controller_costs_two_epochs() -> None:
    cluster = SimulatedCluster(1, 2, 3, controller=1)
    (tp,) = cluster.create("t", (1, 2, 3))
    del cluster.registered[BrokerId(1)]
    cluster.fail_over(BrokerId(2))
    after = cluster.znodes.states[tp]
    assert (after.leader, after.isr, after.leader_epoch) == (2, ids(2, 3), 2)
    assert after.controller_epoch == 2


def test_failure_of_in_sync_follower_costs_one_epoch() -> None:
    cluster = SimulatedCluster(1, 2, 3)
    (tp,) = cluster.create("t", (2, 3, 1))
    cluster.kill(3)
    after = cluster.znodes.states[tp]
    assert (after.leader, after.isr, after.leader_epoch) == (2, ids(2, 1), 1)


def test_failure_of_out_of_sync_follower_costs_no_epoch() -> None:
    cluster = SimulatedCluster(1, 2, 3)
    (tp,) = cluster.create("t", (2, 3, 1))
    cluster.catch_up(tp, 2, 1)
    version = cluster.znodes.states[tp].partition_epoch
    cluster.kill(3)
    after = cluster.znodes.states[tp]
    assert (after.leader_epoch, after.partition_epoch) == (0, version)
    assert cluster.context.replica_state(replica(tp, 3)) is ReplicaState.OFFLINE


def test_isr_change_by_leader_changes_only_the_version() -> None:
    cluster = SimulatedCluster(1, 2, 3)
    (tp,) = cluster.create("t", (2, 3, 1))
    cluster.catch_up(tp, 2)
    assert cluster.leader_epoch(tp) == 0
    assert cluster.znodes.states[tp].partition_epoch == 1


def test_reassignment_between_live_brokers_costs_three_epochs() -> None:
    cluster = SimulatedCluster(1, 2)
    (tp,) = cluster.create("t", (1,))
    cluster.reassign(tp, 2)
    cluster.catch_up(tp, 1, 2)
    cluster.complete_reassignments()
    after = cluster.znodes.states[tp]
    assert (after.leader, after.isr, after.leader_epoch) == (2, ids(2), 3)
    assert cluster.context.replicas(tp) == ids(2)


def test_reassignment_to_broker_started_later_costs_four_epochs() -> None:
    cluster = SimulatedCluster(1, 2)
    (tp,) = cluster.create("t", (1,))
    cluster.kill(2)
    cluster.request_assignment(tp, ids(2), requires_live_brokers=False)
    cluster.start(2)
    cluster.catch_up(tp, 1, 2)
    cluster.complete_reassignments()
    assert cluster.leader_epoch(tp) == 4


def test_preferred_election_costs_one_epoch() -> None:
    cluster = SimulatedCluster(1, 2, 3, controller=1)
    (tp,) = cluster.create("t", (2, 3, 1))
    cluster.kill(2)
    cluster.start(2)
    cluster.catch_up(tp, 3, 1, 2)
    before = cluster.leader_epoch(tp)
    cluster.elect_preferred_leaders(tp)
    after = cluster.znodes.states[tp]
    assert (after.leader, after.isr, after.leader_epoch) == (2, ids(3, 1, 2), before + 1)


def test_last_in_sync_replica_stays_in_isr_without_leader() -> None:
    cluster = SimulatedCluster(1, 2, controller=1)
    (tp,) = cluster.create("t", (2,))
    cluster.kill(2)
    after = cluster.znodes.states[tp]
    assert (after.leader, after.isr, after.leader_epoch) == (-1, ids(2), 1)
    assert cluster.context.partition_state(tp) is PartitionState.OFFLINE
    cluster.start(2)
    back = cluster.znodes.states[tp]
    assert (back.leader, back.isr, back.leader_epoch) == (2, ids(2), 2)


def test_double_failure_costs_one_epoch_for_leader_two_for_followers() -> None:
    cluster = SimulatedCluster(1, 2, 3, 4)
    leading, following = cluster.create("t", (2, 3, 4), (4, 2, 3))
    cluster.kill(2, 3)
    led = cluster.znodes.states[leading]
    assert (led.leader, led.isr, led.leader_epoch) == (4, ids(4), 1)
    followed = cluster.znodes.states[following]
    assert (followed.leader, followed.isr, followed.leader_epoch) == (4, ids(4), 2)


def test_broker_restart_costs_same_epochs_as_failure() -> None:
    cluster = SimulatedCluster(1, 2, 3)
    (tp,) = cluster.create("t", (2, 3, 1))
    cluster.register(2)
    cluster.process_broker_changes()
    after = cluster.znodes.states[tp]
    assert (after.leader, after.isr, after.leader_epoch) == (3, ids(3, 1), 1)
    assert cluster.context.replica_state(replica(tp, 2)) is ReplicaState.ONLINE
