"""Znodes that Kafka's tools and older brokers write for the controller, with three brokers and both registries."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from barnabas.metadata import znodes
from barnabas.model import BrokerId, TopicPartition
from tests.lifecycle.client import create, delete, eventually, expand, topics_of
from tests.lifecycle.conftest import brokers_fail
from tests.lifecycle.watched import DEADLINE_S, DONE, WatchedCluster

T = "t"
P0 = TopicPartition(T, 0)
REASSIGNMENT = znodes.REASSIGN_PARTITIONS


@pytest.fixture
def cluster(edited_cluster: WatchedCluster) -> WatchedCluster:
    return edited_cluster


def create_topic(cluster: WatchedCluster, *assignment: list[BrokerId]) -> None:
    assert cluster.ask(create, T, assignment) == DONE
    cluster.wait_until_healthy(T, list(assignment))


def write(cluster: WatchedCluster, path: str, data: bytes) -> None:
    cluster.observer.run(cluster.observer.session.create(path, data))


def exists(cluster: WatchedCluster, path: str) -> bool:
    return cluster.observer.run(cluster.observer.session.exists(path)) is not None


def wait_until_removed(cluster: WatchedCluster, path: str) -> None:
    eventually(lambda: not exists(cluster, path), lambda: f"{path} is removed", DEADLINE_S)


def wait_for_isr(cluster: WatchedCluster, leader: int, isr: set[BrokerId]) -> None:
    """Wait until all running brokers report this leader and ISR of partition 0."""

    def reported() -> list[tuple[int, set[int]]]:
        alive = sorted(cluster.brokers.alive())
        views = [topics_of(cluster.brokers.address(each), [T]).get(T) for each in alive]
        return [
            (-1, set())
            if view is None
            else (view.partitions[0].leader, set(view.partitions[0].isr))
            for view in views
        ]

    eventually(
        lambda: all(each == (leader, isr) for each in reported()),
        lambda: f"leader {leader}, ISR {isr}: {reported()}",
        DEADLINE_S,
    )


def lines(cluster: WatchedCluster, text: str) -> list[str]:
    return [line for line in cluster.brokers.log().splitlines() if text in line]


def wait_for_line(cluster: WatchedCluster, text: str, count: int = 1) -> None:
    eventually(
        lambda: len(lines(cluster, text)) == count,
        lambda: f"{count} lines with {text}: {lines(cluster, text)}",
        DEADLINE_S,
    )


# ---- preferred leader elections ---------------------------------------------------------------------------


def move_leader_to_second_replica(cluster: WatchedCluster) -> tuple[BrokerId, BrokerId, BrokerId]:
    """Create t with all replicas in sync and the second as leader. The third is the controller."""
    controller = cluster.controller()
    first, second = sorted(cluster.brokers.alive() - {controller})
    create_topic(cluster, [first, second, controller])
    cluster.brokers.kill([first])
    wait_for_isr(cluster, second, {second, controller})
    cluster.brokers.restart([first])
    wait_for_isr(cluster, second, {first, second, controller})
    return first, second, controller


@brokers_fail
def test_preferred_election_moves_leader_back(cluster: WatchedCluster) -> None:
    first, second, controller = move_leader_to_second_replica(cluster)
    request = znodes.encode_partitions([P0, TopicPartition("unknown", 0)])
    write(cluster, znodes.PREFERRED_REPLICA_ELECTION, request)
    wait_for_isr(cluster, first, {first, second, controller})
    wait_until_removed(cluster, znodes.PREFERRED_REPLICA_ELECTION)
    write(cluster, znodes.PREFERRED_REPLICA_ELECTION, b"{")
    wait_until_removed(cluster, znodes.PREFERRED_REPLICA_ELECTION)
    wait_for_line(cluster, "removing an invalid preferred election request")


@brokers_fail
def test_preferred_election_is_held_by_next_controller(cluster: WatchedCluster) -> None:
    first, second, controller = move_leader_to_second_replica(cluster)
    cluster.brokers.kill([controller])
    write(cluster, znodes.PREFERRED_REPLICA_ELECTION, znodes.encode_partitions([P0]))
    wait_for_isr(cluster, first, {first, second})
    wait_until_removed(cluster, znodes.PREFERRED_REPLICA_ELECTION)


# ---- ISR notifications ------------------------------------------------------------------------------------


def test_isr_notification_refreshes_metadata_of_all_brokers(cluster: WatchedCluster) -> None:
    first, second, third = sorted(cluster.brokers.alive())
    create_topic(cluster, [first, second, third])
    state = cluster.observer.states(T, 1)[0]
    shrunk = znodes.encode_state(replace(state, isr=(first, third)))
    cluster.observer.run(
        cluster.observer.session.set(znodes.state_path(P0), shrunk, state.partition_epoch)
    )
    notification = cluster.observer.session.create(
        znodes.ISR_CHANGE_PREFIX, znodes.encode_partitions([P0]), sequential=True
    )
    path, _ = cluster.observer.run(notification)
    wait_until_removed(cluster, path)
    wait_for_isr(cluster, first, {first, third})


# ---- reassignments ----------------------------------------------------------------------------------------


def test_reassignment_request_is_executed_and_removed(cluster: WatchedCluster) -> None:
    first, second, third = sorted(cluster.brokers.alive())
    create_topic(cluster, [first, second])
    request = {P0: [third, first], TopicPartition("unknown", 0): [first]}
    write(cluster, REASSIGNMENT, znodes.encode_reassignment(request))
    cluster.wait_until_moved(T, [[third, first]])
    wait_until_removed(cluster, REASSIGNMENT)
    wait_for_line(cluster, "partitions=unknown-0:UNKNOWN_TOPIC_OR_PARTITION")
    cluster.wait_until_healthy(T, [[third, first]])


def write_assignment(cluster: WatchedCluster, assignment: znodes.ReplicaAssignment) -> None:
    """Write the assignment of partition 0, as a controller does that crashes then."""
    found = cluster.topic_znode(T)
    assert found is not None
    written = replace(found, partitions={**found.partitions, 0: assignment})
    path = znodes.topic_path(T)
    cluster.observer.run(cluster.observer.session.set(path, znodes.encode_topic(written)))


def begin_reassignment(cluster: WatchedCluster) -> tuple[BrokerId, BrokerId]:
    """Begin to move partition 0 to another broker, without a controller. Returns the target."""
    found = cluster.topic_znode(T)
    assert found is not None
    first, second = found.partitions[0].replicas
    (third,) = {*cluster.brokers.ports().values()} - {first, second}
    moving = znodes.ReplicaAssignment(
        replicas=(third, second, first), adding=(third,), removing=(first,)
    )
    write_assignment(cluster, moving)
    return third, second


def test_new_controller_continues_unfinished_reassignment(cluster: WatchedCluster) -> None:
    first, second, _ = sorted(cluster.brokers.alive())
    create_topic(cluster, [first, second], [second, first])
    target = begin_reassignment(cluster)
    assert cluster.ask(expand, T, 3) == "REASSIGNMENT_IN_PROGRESS"
    cluster.fail_over()
    cluster.wait_until_moved(T, [list(target)])
    assert cluster.ask(expand, T, 3) == DONE
    cluster.wait_until_led(T, 3, sorted(cluster.brokers.alive()))


def test_new_controller_replaces_leader_that_a_cancellation_unassigned(
    cluster: WatchedCluster,
) -> None:
    first, second, _ = sorted(cluster.brokers.alive())
    create_topic(cluster, [first, second])
    write_assignment(cluster, znodes.ReplicaAssignment(replicas=(second,)))
    cluster.fail_over()
    wait_for_isr(cluster, second, {second})
    eventually(
        lambda: cluster.directories_of(T, 1) == {0: [second]},
        lambda: f"the old leader is deleted: {cluster.directories_of(T, 1)}",
        DEADLINE_S,
    )


def test_topic_with_unfinished_reassignment_is_deleted(cluster: WatchedCluster) -> None:
    first, second, _ = sorted(cluster.brokers.alive())
    create_topic(cluster, [first, second], [second, first])
    begin_reassignment(cluster)
    assert cluster.ask(delete, T) == DONE
    cluster.wait_until_gone(T)
    eventually(
        lambda: not any(cluster.directories_of(T, 2).values()),
        lambda: f"no directories: {cluster.directories_of(T, 2)}",
        DEADLINE_S,
    )


@brokers_fail
def test_start_continues_unfinished_reassignment(cluster: WatchedCluster) -> None:
    """Like a takeover of a Kafka cluster's data: no broker has led the partition before."""
    all_brokers = sorted(cluster.brokers.alive())
    create_topic(cluster, all_brokers[:2], all_brokers[1:])
    cluster.brokers.kill(all_brokers)
    eventually(
        lambda: not cluster.observer.broker_epochs(), lambda: "all failures detected", DEADLINE_S
    )
    target = begin_reassignment(cluster)
    cluster.brokers.restart(all_brokers)
    cluster.wait_until_moved(T, [list(target)])
    cluster.wait_until_healthy(T, [list(target), all_brokers[1:]])
