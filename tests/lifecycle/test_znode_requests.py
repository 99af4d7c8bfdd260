"""Znodes that Kafka's tools and older brokers leave for the controller, under three brokers and on both registries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from barnabas.metadata import znodes
from barnabas.model import BrokerId, TopicPartition
from tests.lifecycle.client import create, delete, eventually, expand, topics_of
from tests.lifecycle.conftest import LASTING_MS, LONG_MS, NewBrokers
from tests.lifecycle.watched import DEADLINE_S, DONE, Watched

T = "t"
P0 = TopicPartition(T, 0)
REASSIGNMENT = znodes.REASSIGN_PARTITIONS

brokers_fail = pytest.mark.parametrize("cluster", [LONG_MS], indirect=True, ids=["short"])


@pytest.fixture
def cluster(new_brokers: NewBrokers, request: pytest.FixtureRequest) -> Iterator[Watched]:
    found = Watched(new_brokers(session_timeout_ms=getattr(request, "param", LASTING_MS)))
    try:
        yield found
    finally:
        found.stop()


def have(cluster: Watched, *assignment: list[BrokerId]) -> None:
    assert cluster.ask(create, T, assignment) == DONE
    cluster.wait_until_healthy(T, list(assignment))


def write(cluster: Watched, path: str, data: bytes) -> None:
    cluster.observer.run(cluster.observer.session.create(path, data))


def exists(cluster: Watched, path: str) -> bool:
    return cluster.observer.run(cluster.observer.session.exists(path)) is not None


def wait_until_removed(cluster: Watched, path: str) -> None:
    eventually(lambda: not exists(cluster, path), lambda: f"{path} is removed", DEADLINE_S)


def wait_for_isr(cluster: Watched, leader: int, isr: set[BrokerId]) -> None:
    """All brokers that are up report this leader and this ISR of partition 0."""

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


def fail_over(cluster: Watched) -> None:
    """Another epoch, without the failure of any broker."""
    epoch = cluster.observer.controller_epoch()
    cluster.observer.run(cluster.observer.session.delete(znodes.CONTROLLER))
    eventually(
        lambda: cluster.observer.controller_epoch() > epoch, lambda: "another epoch", DEADLINE_S
    )


def lines(cluster: Watched, text: str) -> list[str]:
    return [line for line in cluster.brokers.log().splitlines() if text in line]


def wait_for_line(cluster: Watched, text: str, count: int = 1) -> None:
    eventually(
        lambda: len(lines(cluster, text)) == count,
        lambda: f"{count} lines with {text}: {lines(cluster, text)}",
        DEADLINE_S,
    )


# ---- preferred leader elections ---------------------------------------------------------------------------


def have_another_leader(cluster: Watched) -> tuple[BrokerId, BrokerId, BrokerId]:
    """All replicas of t are in sync, and the second leads. The third is the controller."""
    controller = cluster.controller()
    first, second = sorted(cluster.brokers.alive() - {controller})
    have(cluster, [first, second, controller])
    cluster.brokers.kill([first])
    wait_for_isr(cluster, second, {second, controller})
    cluster.brokers.restart([first])
    wait_for_isr(cluster, second, {first, second, controller})
    return first, second, controller


@brokers_fail
def test_preferred_election_moves_the_leader_back(cluster: Watched) -> None:
    first, second, controller = have_another_leader(cluster)
    request = znodes.encode_partitions([P0, TopicPartition("unknown", 0)])
    write(cluster, znodes.PREFERRED_REPLICA_ELECTION, request)
    wait_for_isr(cluster, first, {first, second, controller})
    wait_until_removed(cluster, znodes.PREFERRED_REPLICA_ELECTION)
    write(cluster, znodes.PREFERRED_REPLICA_ELECTION, b"{")
    wait_until_removed(cluster, znodes.PREFERRED_REPLICA_ELECTION)
    wait_for_line(cluster, "removing an invalid preferred election request")


@brokers_fail
def test_preferred_election_is_held_by_the_next_controller(cluster: Watched) -> None:
    first, second, controller = have_another_leader(cluster)
    cluster.brokers.kill([controller])
    write(cluster, znodes.PREFERRED_REPLICA_ELECTION, znodes.encode_partitions([P0]))
    wait_for_isr(cluster, first, {first, second})
    wait_until_removed(cluster, znodes.PREFERRED_REPLICA_ELECTION)


# ---- ISR notifications ------------------------------------------------------------------------------------


def test_isr_notification_refreshes_the_metadata_of_all_brokers(cluster: Watched) -> None:
    first, second, third = sorted(cluster.brokers.alive())
    have(cluster, [first, second, third])
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


def test_reassignment_request_is_logged_once_per_controller_and_kept(cluster: Watched) -> None:
    have(cluster, sorted(cluster.brokers.alive()))
    write(cluster, REASSIGNMENT, znodes.encode_reassignment({P0: [1]}))
    wait_for_line(cluster, f"path={REASSIGNMENT} partitions=t-0;")
    assert cluster.ask(expand, T, 2) == DONE
    wait_for_line(cluster, f"path={REASSIGNMENT} partitions=t-0;")
    fail_over(cluster)
    wait_for_line(cluster, f"path={REASSIGNMENT} partitions=t-0;", count=2)
    assert exists(cluster, REASSIGNMENT)
    assert cluster.ask(delete, T) == DONE
    cluster.wait_until_gone(T)


def begin_reassignment(cluster: Watched) -> znodes.ReplicaAssignment:
    """Write to the znode of t what a controller writes that moves partition 0 to another broker, and then crashes."""
    found = cluster.topic_znode(T)
    assert found is not None
    first, second = found.partitions[0].replicas
    (third,) = {*cluster.brokers.ports().values()} - {first, second}
    moving = znodes.ReplicaAssignment(
        replicas=(third, second, first), adding=(third,), removing=(first,)
    )
    written = replace(found, partitions={**found.partitions, 0: moving})
    path = znodes.topic_path(T)
    cluster.observer.run(cluster.observer.session.set(path, znodes.encode_topic(written)))
    return moving


def check_growth_and_deletion(cluster: Watched, moving: znodes.ReplicaAssignment) -> None:
    assert cluster.ask(expand, T, 3) == DONE
    found = cluster.topic_znode(T)
    assert found is not None
    assert found.partitions[0] == moving, "the reassignment is kept"
    assert [len(found.partitions[index].replicas) for index in (1, 2)] == [2, 2]
    cluster.wait_until_led(T, 3, sorted(cluster.brokers.alive()))
    assert cluster.ask(delete, T) == DONE
    cluster.wait_until_gone(T)
    eventually(
        lambda: not any(cluster.directories_of(T, 3).values()),
        lambda: f"no directories: {cluster.directories_of(T, 3)}",
        DEADLINE_S,
    )


@pytest.mark.parametrize("is_early", [False, True], ids=["after", "before"])
def test_topic_with_unfinished_reassignment_grows_and_is_deleted(
    cluster: Watched, is_early: bool
) -> None:
    """After the failover, or before it."""
    first, second, _ = sorted(cluster.brokers.alive())
    have(cluster, [first, second], [second, first])
    moving = begin_reassignment(cluster)
    if not is_early:
        fail_over(cluster)
        wait_for_line(cluster, "unfinished reassignment is not continued")
    check_growth_and_deletion(cluster, moving)


@brokers_fail
def test_cluster_that_starts_with_an_unfinished_reassignment_has_all_replicas_in_sync(
    cluster: Watched,
) -> None:
    """As when the data of a Kafka cluster is taken over: no broker knows the partition from before."""
    everybody = sorted(cluster.brokers.alive())
    have(cluster, everybody[:2], everybody[1:])
    cluster.brokers.kill(everybody)
    eventually(lambda: not cluster.observer.broker_epochs(), lambda: "all are missed", DEADLINE_S)
    moving = begin_reassignment(cluster)
    cluster.brokers.restart(everybody)
    cluster.wait_until_healthy(T, [list(moving.replicas), everybody[1:]])
    wait_for_line(cluster, "unfinished reassignment is not continued")
    check_growth_and_deletion(cluster, moving)
