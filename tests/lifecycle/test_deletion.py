"""Hand-written expansions, pending deletions, and deletions finished by a new controller, on both registries.

Brokers are killed as in test_crash_points.py, but between the steps of a test, and several at once.
"""

from __future__ import annotations

from msgspec.structs import replace

from barnabas.errors import ErrorCode
from barnabas.metadata import znodes
from barnabas.model import BrokerId
from tests.lifecycle.client import create, delete, eventually, expand
from tests.lifecycle.conftest import brokers_fail
from tests.lifecycle.scenarios import Role
from tests.lifecycle.watched import DEADLINE_S, DONE, UNKNOWN, Assignment, WatchedCluster

T = "t"
QUEUED = ErrorCode.INVALID_TOPIC_EXCEPTION.name
TAKEN = ErrorCode.TOPIC_ALREADY_EXISTS.name


def create_topic(cluster: WatchedCluster, assignment: Assignment) -> znodes.TopicAssignment:
    made = cluster.ask(create, T, assignment)
    assert made == DONE
    cluster.wait_until_healthy(T, assignment)
    found = cluster.topic_znode(T)
    assert found is not None
    return found


def all_brokers(cluster: WatchedCluster) -> list[BrokerId]:
    return sorted(cluster.brokers.ports().values())


def write_by_hand(cluster: WatchedCluster, topic: znodes.TopicAssignment) -> None:
    path = znodes.topic_path(T)
    cluster.invariants.allow_edits(T)
    cluster.observer.run(cluster.observer.session.set(path, znodes.encode_topic(topic)))


def with_another_partition(
    topic: znodes.TopicAssignment, replicas: list[BrokerId]
) -> znodes.TopicAssignment:
    added = {len(topic.partitions): znodes.ReplicaAssignment(replicas=tuple(replicas))}
    return replace(topic, partitions={**topic.partitions, **added})


def wait_until_recreatable(cluster: WatchedCluster, before: znodes.TopicAssignment) -> None:
    """Recreate the topic with nothing of the old one: a new id, no records, and leader epochs from 0."""
    cluster.wait_until_gone(T)
    left = cluster.directories_of(T, len(before.partitions))
    assert not any(left.values()), f"directories are left: {left}"
    cluster.wait_until_hidden(T, all_brokers(cluster))
    after = create_topic(cluster, [all_brokers(cluster)] * 2)
    assert after.topic_id != before.topic_id
    assert cluster.check_states(T, 2) == [0, 0]


def test_hand_written_partitions_are_created(cluster: WatchedCluster) -> None:
    first, second, third = all_brokers(cluster)
    before = create_topic(cluster, [[first, second, third]])
    write_by_hand(cluster, with_another_partition(before, [second, third, first]))
    cluster.wait_until_healthy(T, [[first, second, third], [second, third, first]])
    assert cluster.check_states(T, 2) == [0, 0]
    assert cluster.directories_of(T, 2) == {0: all_brokers(cluster), 1: all_brokers(cluster)}
    # The same with the tools of an older Kafka, which know no topic ids.
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


@brokers_fail
def test_pending_deletion_waits_for_failed_replica_and_blocks_expansion(
    cluster: WatchedCluster,
) -> None:
    roles = cluster.roles()
    dead = roles[Role.OTHER]
    assignment = [all_brokers(cluster)] * 2
    before = create_topic(cluster, assignment)
    cluster.brokers.kill([dead])
    survivors = sorted(cluster.brokers.alive())
    cluster.wait_until_missed(survivors)
    assert cluster.ask(delete, T) == DONE, "the request does not wait for failed brokers"
    cluster.wait_until_hidden(T, survivors)
    eventually(
        lambda: not any(cluster.directories_of(T, 2).values()),
        lambda: f"the survivors have deleted it: {cluster.directories_of(T, 2)}",
        DEADLINE_S,
    )
    assert cluster.ask(expand, T, 3) == QUEUED
    assert cluster.ask(create, T, [survivors]) == TAKEN
    assert cluster.ask(delete, T) == UNKNOWN, "as in Kafka for a hidden topic"

    kept = cluster.topic_znode(T)
    assert kept is not None
    assert kept.topic_id == before.topic_id
    write_by_hand(cluster, with_another_partition(kept, all_brokers(cluster)))
    eventually(
        lambda: cluster.topic_znode(T) == kept,
        lambda: f"it shrinks back: {cluster.topic_znode(T)}",
        DEADLINE_S,
    )
    assert cluster.is_marked(T)

    cluster.brokers.restart([dead])
    wait_until_recreatable(cluster, before)


@brokers_fail
def test_new_controller_continues_deletion_with_broker_down(
    cluster: WatchedCluster,
) -> None:
    roles = cluster.roles()
    down, in_charge, last = roles[Role.OTHER], roles[Role.CONTROLLER], roles[Role.REPLICA]
    before = create_topic(cluster, [all_brokers(cluster)] * 2)
    cluster.brokers.kill([down])
    cluster.wait_until_missed(sorted([in_charge, last]))
    assert cluster.ask(delete, T) == DONE
    cluster.brokers.kill([in_charge])
    cluster.wait_until_missed([last])
    cluster.wait_until_hidden(T, [last])
    assert cluster.is_marked(T), "two replicas are not available for deletion"

    cluster.brokers.restart([down])
    cluster.wait_until_hidden(T, sorted([down, last]))
    eventually(
        lambda: not any(cluster.directories_of(T, 2).values()),
        lambda: f"the available replicas are deleted: {cluster.directories_of(T, 2)}",
        DEADLINE_S,
    )
    assert cluster.is_marked(T), "one replica is not available for deletion"

    cluster.brokers.restart([in_charge])
    wait_until_recreatable(cluster, before)
