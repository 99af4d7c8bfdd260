"""Topics that grow by hand, topics that wait for their deletion, and what a new controller finishes; both registries.

Brokers die here as they do in test_crash_points.py, but between the steps of a story, and more of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from barnabas.errors import ErrorCode
from barnabas.metadata import znodes
from barnabas.model import BrokerId
from tests.lifecycle.client import create, delete, eventually, expand
from tests.lifecycle.conftest import LASTING_MS, LONG_MS, NewBrokers
from tests.lifecycle.scenarios import Role
from tests.lifecycle.watched import DEADLINE_S, DONE, UNKNOWN, Assignment, Watched

T = "t"
QUEUED = ErrorCode.INVALID_TOPIC_EXCEPTION.name
TAKEN = ErrorCode.TOPIC_ALREADY_EXISTS.name


somebody_dies = pytest.mark.parametrize("cluster", [LONG_MS], indirect=True, ids=["deadly"])


@pytest.fixture
def cluster(new_brokers: NewBrokers, request: pytest.FixtureRequest) -> Iterator[Watched]:
    found = Watched(new_brokers(session_timeout_ms=getattr(request, "param", LASTING_MS)))
    try:
        yield found
        found.listen()
        assert not found.invariants.broken
    finally:
        found.stop()


def have(cluster: Watched, assignment: Assignment) -> znodes.TopicAssignment:
    made = cluster.ask(create, T, assignment)
    assert made == DONE
    cluster.wait_until_healthy(T, assignment)
    found = cluster.topic_znode(T)
    assert found is not None
    return found


def everybody(cluster: Watched) -> list[BrokerId]:
    return sorted(cluster.brokers.ports().values())


def write_by_hand(cluster: Watched, topic: znodes.TopicAssignment) -> None:
    path = znodes.topic_path(T)
    cluster.invariants.is_edited(T)
    cluster.observer.run(cluster.observer.session.set(path, znodes.encode_topic(topic)))


def with_another_partition(
    topic: znodes.TopicAssignment, replicas: list[BrokerId]
) -> znodes.TopicAssignment:
    added = {len(topic.partitions): znodes.ReplicaAssignment(replicas=tuple(replicas))}
    return replace(topic, partitions={**topic.partitions, **added})


def wait_until_it_can_be_made_anew(cluster: Watched, before: znodes.TopicAssignment) -> None:
    """With nothing of the one before: another id, no records, leader epochs from 0 on."""
    cluster.wait_until_gone(T)
    left = cluster.directories_of(T, len(before.partitions))
    assert not any(left.values()), f"directories are left: {left}"
    cluster.wait_until_hidden(T, everybody(cluster))
    after = have(cluster, [everybody(cluster)] * 2)
    assert after.topic_id != before.topic_id
    assert cluster.check_states(T, 2) == [0, 0]


def test_partitions_that_somebody_writes_by_hand_come_into_being(cluster: Watched) -> None:
    first, second, third = everybody(cluster)
    before = have(cluster, [[first, second, third]])
    write_by_hand(cluster, with_another_partition(before, [second, third, first]))
    cluster.wait_until_healthy(T, [[first, second, third], [second, third, first]])
    assert cluster.check_states(T, 2) == [0, 0]
    assert cluster.directories_of(T, 2) == {0: everybody(cluster), 1: everybody(cluster)}
    # And by the tools of an older Kafka, which know of no ids.
    third_partition = with_another_partition(
        with_another_partition(before, [second, third, first]), [third, first, second]
    )
    write_by_hand(cluster, replace(third_partition, topic_id=None))
    cluster.wait_until_healthy(
        T, [[first, second, third], [second, third, first], [third, first, second]]
    )
    found = cluster.topic_znode(T)
    assert found is not None
    assert found.topic_id == before.topic_id
    assert cluster.ask(expand, T, 4) == DONE


@somebody_dies
def test_a_topic_waits_for_a_dead_replica_and_grows_no_more(cluster: Watched) -> None:
    roles = cluster.roles()
    dead = roles[Role.OTHER]
    assignment = [everybody(cluster)] * 2
    before = have(cluster, assignment)
    cluster.brokers.kill([dead])
    survivors = sorted(cluster.brokers.alive())
    cluster.wait_until_missed(survivors)
    assert cluster.ask(delete, T) == DONE, "whoever is gone is not waited for"
    cluster.wait_until_hidden(T, survivors)
    eventually(
        lambda: not any(cluster.directories_of(T, 2).values()),
        lambda: f"those who live have deleted it: {cluster.directories_of(T, 2)}",
        DEADLINE_S,
    )
    assert cluster.ask(expand, T, 3) == QUEUED
    assert cluster.ask(create, T, [survivors]) == TAKEN
    assert cluster.ask(delete, T) == UNKNOWN, "as Kafka tells it of what is hidden"

    kept = cluster.topic_znode(T)
    assert kept is not None
    assert kept.topic_id == before.topic_id
    write_by_hand(cluster, with_another_partition(kept, everybody(cluster)))
    eventually(
        lambda: cluster.topic_znode(T) == kept,
        lambda: f"it goes back to what it was: {cluster.topic_znode(T)}",
        DEADLINE_S,
    )
    assert cluster.is_marked(T)

    cluster.brokers.restart([dead])
    wait_until_it_can_be_made_anew(cluster, before)


@somebody_dies
def test_a_new_controller_goes_on_with_a_deletion_while_another_broker_is_down(
    cluster: Watched,
) -> None:
    roles = cluster.roles()
    down, in_charge, last = roles[Role.OTHER], roles[Role.CONTROLLER], roles[Role.REPLICA]
    before = have(cluster, [everybody(cluster)] * 2)
    cluster.brokers.kill([down])
    cluster.wait_until_missed(sorted([in_charge, last]))
    assert cluster.ask(delete, T) == DONE
    cluster.brokers.kill([in_charge])
    cluster.wait_until_missed([last])
    cluster.wait_until_hidden(T, [last])
    assert cluster.is_marked(T), "two replicas are not there to be deleted"

    cluster.brokers.restart([down])
    cluster.wait_until_hidden(T, sorted([down, last]))
    eventually(
        lambda: not any(cluster.directories_of(T, 2).values()),
        lambda: f"it is deleted where it can be: {cluster.directories_of(T, 2)}",
        DEADLINE_S,
    )
    assert cluster.is_marked(T), "one replica is not there to be deleted"

    cluster.brokers.restart([in_charge])
    wait_until_it_can_be_made_anew(cluster, before)
