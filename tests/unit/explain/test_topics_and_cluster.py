"""Rules for deletions, names, brokers and the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.view import ClusterView
from barnabas.explain.cluster import explain_broker, explain_cluster
from barnabas.explain.facts import (
    ClusterFacts,
    ClusterSettings,
    ControllerQueue,
    LogDirFacts,
    Probe,
    RegistryFacts,
    TopicSettings,
)
from barnabas.explain.finding import Cause, Severity
from barnabas.explain.history_facts import BrokerLoss, HistoryFacts, RequestedDeletion
from barnabas.explain.topics import explain_topic
from barnabas.metadata.znodes import ReplicaAssignment
from barnabas.model import BrokerId
from tests.unit.explain.facts_of import FIRST, NOW_MS, facts_of, partition, registry_with

SILENT = Probe(is_responding=False)
REFUSED = Probe(is_responding=False, is_refused=True)
FAILED_DIR = Probe(is_responding=True, log_dirs=(LogDirFacts(path="/d", is_failed=True),))
FULL_DIR = Probe(is_responding=True, log_dirs=(LogDirFacts(path="/d", usable_bytes=10),))
IN_SYNC = partition(1, (1, 2), (1, 2))


def deleting(**options: Any) -> ClusterFacts:
    """Facts about a topic on brokers 2 and 3 that is marked for deletion."""
    registry = options.pop("registry", None) or registry_with(
        {"orders": (2, 3)}, markers={"orders": NOW_MS - 5000}
    )
    return facts_of(registry=registry, **options)


MOVE = {FIRST: ReplicaAssignment(replicas=(BrokerId(2),), adding=(BrokerId(3),))}
NO_TOPIC = registry_with({}, markers={"orders": NOW_MS})
LEADERLESS = registry_with({"orders": (2, 3)}, markers={"orders": NOW_MS}, controller=None)


@pytest.mark.parametrize(
    ("facts", "cause", "brokers"),
    [
        (deleting(alive=(1, 2)), Cause.DELETION_WAITS_FOR_BROKER, (3,)),
        (deleting(probes={3: SILENT}), Cause.DELETION_WAITS_FOR_SILENT_BROKER, (3,)),
        (deleting(probes={3: FAILED_DIR}), Cause.DELETION_WAITS_FOR_LOG_DIR, (3,)),
        (deleting(registry=LEADERLESS), Cause.DELETION_WAITS_FOR_CONTROLLER, ()),
        (deleting(queue=ControllerQueue.STUCK), Cause.DELETION_WAITS_FOR_CONTROLLER, ()),
        (deleting(probes={1: SILENT}), Cause.DELETION_WAITS_FOR_CONTROLLER, ()),
        (
            deleting(settings=ClusterSettings(is_delete_enabled=False)),
            Cause.DELETION_DISABLED,
            (),
        ),
        (deleting(), Cause.DELETION_RUNNING, (2, 3)),
        (deleting(registry=NO_TOPIC), Cause.MARKER_WITHOUT_TOPIC, ()),
    ],
)
def test_deletion_cause(facts: ClusterFacts, cause: Cause, brokers: tuple[int, ...]) -> None:
    (found,) = explain_topic(facts, "orders")
    assert (found.cause, found.brokers) == (cause, brokers)


def test_deletion_is_known_from_history_without_registry() -> None:
    history = HistoryFacts(deletions={"orders": RequestedDeletion(NOW_MS - 9, "app", (3,))})
    (found,) = explain_topic(facts_of(alive=(1, 2), history=history), "orders")
    assert (found.cause, found.brokers) == (Cause.DELETION_WAITS_FOR_BROKER, (3,))
    assert (found.since_ms, found.values["by"]) == (NOW_MS - 9, "app")


def test_partitions_of_deleted_topic_are_not_explained() -> None:
    registry = registry_with({"orders": (1, 2)}, markers={"orders": NOW_MS})
    facts = facts_of(partition(None, (1, 2), (2,)), alive=(1,), registry=registry)
    assert [each.cause for each in explain_topic(facts, "orders")] == [
        Cause.DELETION_WAITS_FOR_BROKER
    ]


def test_colliding_names_are_found_once() -> None:
    facts = facts_of(others=("a.b", "a_b", "c"))
    assert [each.cause for each in explain_topic(facts, "a.b")] == [Cause.TOPIC_NAMES_COLLIDE]
    assert [(each.cause, each.topic) for each in explain_cluster(facts)] == [
        (Cause.TOPIC_NAMES_COLLIDE, "a_b")
    ]


def test_invalid_znode_is_named() -> None:
    registry = registry_with({}, invalid={"orders": "not JSON: b'x'"})
    (found,) = explain_topic(facts_of(registry=registry), "orders")
    assert found.cause is Cause.TOPIC_ZNODE_INVALID
    assert found.values["why"] == "not JSON: b'x'"


# ---- brokers and the cluster


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        (facts_of(IN_SYNC, alive=(1, 3)), Cause.BROKER_DOWN),
        (
            facts_of(
                IN_SYNC,
                alive=(1, 3),
                history=HistoryFacts(lost_brokers={2: BrokerLoss(NOW_MS, True)}),
            ),
            Cause.BROKER_STOPPED,
        ),
        (
            facts_of(IN_SYNC, alive=(1, 3), history=HistoryFacts(known_brokers=frozenset({1, 3}))),
            Cause.BROKER_NEVER_SEEN,
        ),
        (facts_of(probes={2: SILENT}), Cause.BROKER_SILENT),
        (facts_of(probes={2: REFUSED}), Cause.BROKER_UNREACHABLE),
        (facts_of(probes={2: FAILED_DIR}), Cause.LOG_DIR_FAILED),
        (facts_of(probes={2: FULL_DIR}), Cause.DISK_FULL),
        (facts_of(addresses={2: 9091}), Cause.BROKER_ADDRESS_SHARED),
    ],
)
def test_broker_cause(facts: ClusterFacts, cause: Cause) -> None:
    found = explain_broker(facts, 2)
    assert found[0].cause is cause
    assert found[0].brokers == (2,)
    assert found[0] in explain_cluster(facts)


def test_broker_explains_partitions_that_wait_for_it() -> None:
    facts = facts_of(partition(1, (1, 2), (1,)), partition(1, (1, 3), (1,), number=1), alive=(1,))
    found = explain_broker(facts, 2)
    assert [each.cause for each in found] == [Cause.BROKER_DOWN, Cause.FOLLOWER_DOWN]
    assert found[1].partitions == (FIRST,)


@pytest.mark.parametrize(
    ("facts", "cause", "severity"),
    [
        (facts_of(controller=-1), Cause.NO_CONTROLLER, Severity.ERROR),
        (facts_of(controller=9), Cause.NO_CONTROLLER, Severity.ERROR),
        (facts_of(registry=registry_with({}, controller=99)), Cause.NO_CONTROLLER, Severity.ERROR),
        (facts_of(probes={1: SILENT}), Cause.CONTROLLER_SILENT, Severity.ERROR),
        (facts_of(queue=ControllerQueue.STUCK), Cause.CONTROLLER_STUCK, Severity.ERROR),
        (facts_of(registry_error="refused"), Cause.REGISTRY_DOWN, Severity.WARNING),
        (facts_of(registry_error="refused", controller=-1), Cause.REGISTRY_DOWN, Severity.ERROR),
        (
            facts_of(registry_error="late", is_registry_lost=True),
            Cause.REGISTRY_DOWN,
            Severity.ERROR,
        ),
        (
            facts_of(settings=ClusterSettings(offsets_replication_factor=4)),
            Cause.OFFSETS_TOPIC_IMPOSSIBLE,
            Severity.ERROR,
        ),
        (
            ClusterFacts(
                now_ms=NOW_MS, view=ClusterView(), registry=RegistryFacts(name="r", controller=1)
            ),
            Cause.NO_BROKER_ANSWERS,
            Severity.ERROR,
        ),
    ],
)
def test_cluster_cause(facts: ClusterFacts, cause: Cause, severity: Severity) -> None:
    assert (cause, severity) in [(each.cause, each.severity) for each in explain_cluster(facts)]


def test_registry_is_newer_than_metadata() -> None:
    registry = registry_with({}, brokers={2: 0}, controller=None)
    facts = facts_of(IN_SYNC, registry=registry)
    causes = [(each.cause, each.brokers) for each in explain_cluster(facts)]
    assert (Cause.ELECTION_PENDING, (2,)) in causes
    assert (Cause.BROKER_DOWN, (1,)) in causes


def test_throttle_without_a_reassignment_is_left_over() -> None:
    settings = {"orders": TopicSettings(throttled_followers="3:1,0:2,0:3")}
    (found,) = explain_cluster(facts_of(IN_SYNC, topic_settings=settings))
    assert (found.cause, found.severity) == (Cause.THROTTLE_LEFT, Severity.WARNING)
    assert found.partitions == (FIRST, FIRST._replace(partition=3))
    own = {"orders": TopicSettings(throttled_followers="*")}
    assert explain_cluster(facts_of(IN_SYNC, topic_settings=own)) == []
    moving = {FIRST: ReplicaAssignment(replicas=(BrokerId(1), BrokerId(2)), adding=(BrokerId(2),))}
    for options in ({"reassignments": moving}, {"controller": 9}):
        causes = {
            each.cause
            for each in explain_cluster(facts_of(IN_SYNC, topic_settings=settings, **options))
        }
        assert Cause.THROTTLE_LEFT not in causes


def test_healthy_cluster_has_no_findings() -> None:
    assert explain_cluster(facts_of(IN_SYNC, queue=ControllerQueue.WORKING)) == []


def test_errors_come_first() -> None:
    facts = facts_of(partition(2, (1, 2), (1, 2)), controller=-1)
    assert [each.severity for each in explain_cluster(facts)] == [Severity.ERROR, Severity.NOTE]


def test_deletions_that_wait_for_the_same_broker_are_merged() -> None:
    registry = registry_with(
        {"a": (2, 3), "b": (3,)}, markers={"a": NOW_MS - 5000, "b": NOW_MS - 9000}
    )
    facts = facts_of(registry=registry, alive=(1, 2))
    (found,) = [each for each in explain_cluster(facts) if each.topics]
    assert found.cause is Cause.DELETION_WAITS_FOR_BROKER
    assert (found.topics, found.since_ms) == (("a", "b"), NOW_MS - 9000)
