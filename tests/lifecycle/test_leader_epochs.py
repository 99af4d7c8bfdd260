"""Increments of the leader epoch in the registry of a running cluster, on both registries.

Each scenario returns the increase of the leader epoch of one partition, measured when all replicas are in sync again.
By then the controller has handled every event of the scenario. tests/unit/controller/test_leader_epochs.py has the same
table for the decisions alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from barnabas.errors import ErrorCode
from barnabas.metadata import znodes
from barnabas.model import NO_LEADER, BrokerId, LeaderAndIsr, TopicPartition
from barnabas.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
)
from tests.lifecycle import client
from tests.lifecycle.client import Address, create, eventually
from tests.lifecycle.conftest import LONG_MS, NewBrokers
from tests.lifecycle.scenarios import Role
from tests.lifecycle.watched import DEADLINE_S, DONE, WatchedCluster

T = "t"
ELECT_VERSION = 2


@pytest.fixture
def cluster(new_brokers: NewBrokers) -> Iterator[WatchedCluster]:
    found = WatchedCluster(new_brokers(session_timeout_ms=LONG_MS))
    try:
        yield found
        found.check_requests()
        assert not found.invariants.broken
    finally:
        found.stop()


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

    def wait_until_moved(self) -> None:
        """Wait for the last write of a reassignment: the final assignment in the znode of the topic."""

        def is_moved() -> bool:
            topic = self.cluster.topic_znode(T)
            final = znodes.ReplicaAssignment(replicas=tuple(self.replicas))
            return topic is not None and topic.partitions[0] == final

        eventually(
            is_moved, lambda: f"the move has ended: {self.cluster.topic_znode(T)}", DEADLINE_S
        )


def elect_preferred(address: Address) -> str:
    request = ElectLeadersRequest(topic_partitions=(ElectLeadersTopic(T, (0,)),))
    answer = client.ask(address, request, ElectLeadersResponse, ELECT_VERSION)
    if answer is None:
        return client.LOST
    if answer.error_code:
        return ErrorCode(answer.error_code).name
    return ErrorCode(answer.replica_election_results[0].partition_result[0].error_code).name


# ---- scenarios --------------------------------------------------------------------------------------------


def crash_leader(cluster: WatchedCluster) -> int:
    measured = Measurement(cluster, Role.REPLICA, Role.OTHER, Role.CONTROLLER)
    leader = measured.replicas[0]
    measured.crash(leader)
    assert measured.state().leader == measured.replicas[1]
    measured.restart(leader)
    return measured.increase()


def crash_leader_that_is_controller(cluster: WatchedCluster) -> int:
    """The new controller first removes the failed broker from the ISR, then it elects: two writes."""
    measured = Measurement(cluster, Role.CONTROLLER, Role.REPLICA, Role.OTHER)
    leader = measured.replicas[0]
    measured.crash(leader)
    measured.restart(leader)
    return measured.increase()


def crash_follower(cluster: WatchedCluster) -> int:
    measured = Measurement(cluster, Role.REPLICA, Role.OTHER, Role.CONTROLLER)
    follower = measured.replicas[1]
    measured.crash(follower)
    assert measured.state().leader == measured.replicas[0]
    measured.restart(follower)
    return measured.increase()


def crash_follower_that_is_controller(cluster: WatchedCluster) -> int:
    measured = Measurement(cluster, Role.REPLICA, Role.OTHER, Role.CONTROLLER)
    follower = measured.replicas[2]
    measured.crash(follower)
    measured.restart(follower)
    return measured.increase()


def crash_only_replica(cluster: WatchedCluster) -> int:
    """One for the loss of the leader, which stays in the ISR, and one for its election after the restart."""
    measured = Measurement(cluster, Role.REPLICA)
    (leader,) = measured.replicas
    measured.crash(leader)
    offline = measured.state()
    assert (offline.leader, offline.isr, offline.leader_epoch) == (NO_LEADER, (leader,), 1)
    measured.restart(leader)
    return measured.increase()


def return_to_isr(cluster: WatchedCluster) -> int:
    """The leader itself adds the follower to the ISR: only the version of the znode changes."""
    measured = Measurement(cluster, Role.REPLICA, Role.OTHER, Role.CONTROLLER)
    follower = measured.replicas[1]
    measured.crash(follower)
    measured.begin()
    measured.restart(follower)
    after = measured.state()
    assert set(after.isr) - set(measured.before.isr) == {follower}
    assert after.partition_epoch == measured.before.partition_epoch + 1
    return measured.increase()


def elect_preferred_leader(cluster: WatchedCluster) -> int:
    measured = Measurement(cluster, Role.REPLICA, Role.OTHER, Role.CONTROLLER)
    preferred = measured.replicas[0]
    measured.crash(preferred)
    measured.restart(preferred)
    measured.begin()
    assert cluster.ask(elect_preferred) == DONE
    assert measured.state().leader == preferred
    return measured.increase()


def shut_down_leader(cluster: WatchedCluster) -> int:
    measured = Measurement(cluster, Role.REPLICA, Role.OTHER, Role.CONTROLLER)
    leader = measured.replicas[0]
    measured.shut_down(leader)
    assert measured.state().leader == measured.replicas[1]
    measured.restart(leader)
    return measured.increase()


def shut_down_leader_that_is_controller(cluster: WatchedCluster) -> int:
    """The controller moves its own leadership before it stops. Its successor has nothing to write."""
    measured = Measurement(cluster, Role.CONTROLLER, Role.REPLICA, Role.OTHER)
    leader = measured.replicas[0]
    measured.shut_down(leader)
    measured.restart(leader)
    return measured.increase()


def shut_down_follower(cluster: WatchedCluster) -> int:
    measured = Measurement(cluster, Role.REPLICA, Role.OTHER, Role.CONTROLLER)
    follower = measured.replicas[1]
    measured.shut_down(follower)
    measured.restart(follower)
    return measured.increase()


def reassign(cluster: WatchedCluster) -> int:
    """One for the new assignment, one for the election of the new replica, one for the removal of the old one."""
    measured = Measurement(cluster, Role.REPLICA)
    measured.request_move(cluster.roles()[Role.OTHER])
    measured.wait_until_moved()
    return measured.increase()


def reassign_to_broker_that_starts_later(cluster: WatchedCluster) -> int:
    """One more: the start of the broker resumes the reassignment, and the assignment is sent again."""
    measured = Measurement(cluster, Role.REPLICA)
    target = cluster.roles()[Role.OTHER]
    measured.crash(target)
    measured.request_move(target)
    cluster.brokers.restart([target])
    measured.wait_until_moved()
    return measured.increase()


@pytest.mark.parametrize(
    ("scenario", "increase"),
    [
        (crash_leader, 1),
        (crash_leader_that_is_controller, 2),
        (crash_follower, 1),
        (crash_follower_that_is_controller, 1),
        (crash_only_replica, 2),
        (return_to_isr, 0),
        (elect_preferred_leader, 1),
        (shut_down_leader, 1),
        (shut_down_leader_that_is_controller, 1),
        (shut_down_follower, 1),
        (reassign, 3),
        (reassign_to_broker_that_starts_later, 4),
    ],
)
def test_each_scenario_raises_leader_epoch_by_fixed_number(
    cluster: WatchedCluster, scenario: Callable[[WatchedCluster], int], increase: int
) -> None:
    assert scenario(cluster) == increase
