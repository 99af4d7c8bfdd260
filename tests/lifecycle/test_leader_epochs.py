"""Increments of the leader epoch in the registry of a running cluster, on both registries.

Each test compares the leader epoch of one partition when all replicas are in sync again. By then the controller has
handled every event. tests/unit/controller/test_leader_epochs.py has the same table for the decisions alone.
test_crash_points.py checks the other increments: those of a reassignment, of a preferred election and of the controlled
shutdown of a leader, when no broker crashes.
"""

from __future__ import annotations

import pytest

from barnabas.metadata import znodes
from barnabas.model import NO_LEADER, BrokerId, LeaderAndIsr, TopicPartition
from tests.lifecycle.client import create, eventually
from tests.lifecycle.conftest import brokers_fail
from tests.lifecycle.scenarios import C, O, R, Role
from tests.lifecycle.watched import DEADLINE_S, DONE, WatchedCluster

T = "t"
pytestmark = brokers_fail


class Measurement:
    """Topic with one partition on brokers with the given roles, in this order. The first leads it."""

    def __init__(self, cluster: WatchedCluster, *roles: Role) -> None:
        self.cluster = cluster
        brokers = cluster.roles()
        self.replicas = [brokers[role] for role in roles]
        assert cluster.ask(create, T, [self.replicas]) == DONE
        self.wait_until_in_sync()
        self.begin()

    def begin(self) -> None:
        """Measure from the current state on."""
        self.before = self.state()

    def state(self) -> LeaderAndIsr:
        return self.cluster.observer.states(T, 1)[0]

    def wait_until_in_sync(self) -> None:
        self.cluster.wait_until_healthy(T, [self.replicas])

    def increase(self) -> int:
        """Wait until all replicas are in sync, and return the increase of the leader epoch."""
        self.wait_until_in_sync()
        return self.state().leader_epoch - self.before.leader_epoch

    # ---- changes

    def crash(self, broker: BrokerId) -> None:
        """Kill a broker and wait until the others have replaced it."""
        self.cluster.brokers.kill([broker])
        self.wait_until_replaced()

    def shut_down(self, broker: BrokerId) -> None:
        """Stop a broker cleanly and wait until the others have replaced it."""
        self.cluster.brokers.shut_down([broker])
        self.wait_until_replaced()

    def wait_until_replaced(self) -> None:
        survivors = sorted(self.cluster.brokers.alive())
        self.cluster.wait_until_missed(survivors)
        if set(self.replicas) & set(survivors):
            self.cluster.wait_until_led(T, 1, survivors)
        else:
            eventually(
                lambda: self.state().leader == NO_LEADER,
                lambda: f"the partition has no leader: {self.state()}",
                DEADLINE_S,
            )

    def restart(self, broker: BrokerId) -> None:
        self.cluster.brokers.restart([broker])
        self.wait_until_in_sync()

    def request_move(self, broker: BrokerId) -> None:
        """Request to move the partition to this broker, which may be down, and wait until the move has begun."""
        request = znodes.encode_reassignment({TopicPartition(T, 0): [broker]})
        session = self.cluster.observer.session
        self.cluster.observer.run(session.create(znodes.REASSIGN_PARTITIONS, request))
        self.replicas = [broker]
        eventually(
            lambda: self.state().leader_epoch > self.before.leader_epoch,
            lambda: f"the move has begun: {self.state()}",
            DEADLINE_S,
        )


@pytest.mark.parametrize(
    ("roles", "failing", "increase"),
    [
        pytest.param((R, O, C), R, 1, id="leader"),
        # The new controller first removes the failed broker from the ISR, then it elects: two writes.
        pytest.param((C, R, O), C, 2, id="leader that is the controller"),
        pytest.param((R, O, C), O, 1, id="follower"),
        pytest.param((R, O, C), C, 1, id="follower that is the controller"),
    ],
)
def test_crash_raises_leader_epoch(
    cluster: WatchedCluster, roles: tuple[Role, ...], failing: Role, increase: int
) -> None:
    measured = Measurement(cluster, *roles)
    broker = measured.replicas[roles.index(failing)]
    measured.crash(broker)
    assert measured.state().leader == next(each for each in measured.replicas if each != broker)
    measured.restart(broker)
    assert measured.increase() == increase


@pytest.mark.parametrize(
    ("roles", "leaving"),
    [
        # The controller moves its own leadership before it stops. Its successor has nothing to write.
        pytest.param((C, R, O), C, id="leader that is the controller"),
        pytest.param((R, O, C), O, id="follower"),
    ],
)
def test_controlled_shutdown_raises_leader_epoch_by_one(
    cluster: WatchedCluster, roles: tuple[Role, ...], leaving: Role
) -> None:
    measured = Measurement(cluster, *roles)
    broker = measured.replicas[roles.index(leaving)]
    measured.shut_down(broker)
    measured.restart(broker)
    assert measured.increase() == 1


def test_crash_of_only_replica_raises_leader_epoch_by_two(cluster: WatchedCluster) -> None:
    """One for the loss of the leader, which stays in the ISR, and one for its election after the restart."""
    measured = Measurement(cluster, R)
    (leader,) = measured.replicas
    measured.crash(leader)
    offline = measured.state()
    assert (offline.leader, offline.isr, offline.leader_epoch) == (NO_LEADER, (leader,), 1)
    measured.restart(leader)
    assert measured.increase() == 2


def test_return_to_isr_does_not_change_leader_epoch(cluster: WatchedCluster) -> None:
    """The leader itself adds the follower to the ISR: only the version of the znode changes."""
    measured = Measurement(cluster, R, O, C)
    follower = measured.replicas[1]
    measured.crash(follower)
    measured.begin()
    measured.restart(follower)
    after = measured.state()
    assert set(after.isr) - set(measured.before.isr) == {follower}
    assert after.partition_epoch == measured.before.partition_epoch + 1
    assert measured.increase() == 0


def test_reassignment_to_broker_that_starts_later_raises_leader_epoch_by_four(
    cluster: WatchedCluster,
) -> None:
    """The start of the broker resumes the reassignment, and the assignment is sent again.

    So there are two for the new assignment, one for the election and one for the removal of the old replica.
    """
    measured = Measurement(cluster, R)
    target = cluster.roles()[O]
    measured.crash(target)
    measured.request_move(target)
    cluster.brokers.restart([target])
    cluster.wait_until_moved(T, [measured.replicas])
    assert measured.increase() == 4
