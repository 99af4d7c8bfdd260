"""Rules for brokers and for the cluster as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from barnabas.explain.facts import ClusterFacts, ControllerQueue
from barnabas.explain.finding import Cause, Finding, Severity, merge_findings
from barnabas.explain.partitions import is_never_seen
from barnabas.explain.topics import (
    explain_partitions,
    find_collisions,
    find_deletion,
    find_invalid_znode,
    is_being_deleted,
    marked_topics,
)
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.model import TopicPartition

PARTITION_VALUES = ("unclean_end", "unclean_since_ms")
"""Values that differ between partitions with the same cause."""


def explain_cluster(facts: ClusterFacts) -> list[Finding]:
    """Return all problems of the cluster: controller, registry, brokers, topics."""
    if not facts.view.brokers:
        return [*find_unreachable_cluster(facts), *find_controller(facts), *find_registry(facts)]
    deleted = marked_topics(facts)
    found = [*find_controller(facts), *find_registry(facts), *find_offsets_topic(facts)]
    for broker in known_brokers(facts):
        found += find_broker(facts, broker)
    registered = () if facts.registry is None else facts.registry.topics
    names = dict.fromkeys([*facts.view.topics, *registered])
    found += explain_partitions(facts, [name for name in names if name not in deleted])
    for topic in sorted(deleted):
        found += find_deletion(facts, topic)
    for topic in facts.registry.invalid if facts.registry is not None else ():
        found += find_invalid_znode(facts, topic)
    found += find_left_throttles(facts)
    return merge_findings([*map(without_topic, found), *find_collisions(facts)])


def without_topic(finding: Finding) -> Finding:
    """Return a finding without the facts that differ between topics, so that topics are merged."""
    if not finding.partitions:
        return (
            finding
            if finding.topic is None
            else replace(finding, topic=None, topics=(finding.topic,))
        )
    values = {name: each for name, each in finding.values.items() if name not in PARTITION_VALUES}
    return replace(finding, topic=None, values=values)


def explain_broker(facts: ClusterFacts, broker: int) -> list[Finding]:
    """Return the problems of a broker, and those of partitions that wait for it."""
    found = list(find_broker(facts, broker))
    if facts.view.controller == broker:
        found += find_controller(facts)
    topics = [name for name in facts.view.topics if not is_being_deleted(facts, name)]
    found += [each for each in explain_partitions(facts, topics) if broker in each.brokers]
    for topic in sorted(marked_topics(facts)):
        found += [each for each in find_deletion(facts, topic) if broker in each.brokers]
    return merge_findings(map(without_topic, found))


def known_brokers(facts: ClusterFacts) -> list[int]:
    """Return the registered brokers, and those with replicas."""
    assigned = {
        broker
        for topic in facts.view.topics.values()
        for each in topic.partitions
        for broker in each.replicas
    }
    return sorted(assigned | {int(broker) for broker in facts.view.brokers})


# ---- brokers --------------------------------------------------------------------------------------------------


def find_broker(facts: ClusterFacts, broker: int) -> Iterator[Finding]:
    if not facts.is_registered(broker):
        yield find_absent_broker(facts, broker)
        return
    shared = sorted(brokers_at_same_address(facts, broker))
    if shared:
        yield broker_finding(
            Cause.BROKER_ADDRESS_SHARED,
            Severity.ERROR,
            broker,
            address=address_of(facts, broker),
            other=shared[0],
        )
    elif facts.is_silent(broker):
        probe = facts.probes[broker]
        cause = Cause.BROKER_UNREACHABLE if probe.is_refused else Cause.BROKER_SILENT
        yield broker_finding(cause, Severity.ERROR, broker, address=address_of(facts, broker))
    for path in facts.failed_dirs(broker):
        yield broker_finding(Cause.LOG_DIR_FAILED, Severity.ERROR, broker, dirs=path)
    for path in facts.full_dirs(broker):
        yield broker_finding(Cause.DISK_FULL, Severity.ERROR, broker, dirs=path)


def find_absent_broker(facts: ClusterFacts, broker: int) -> Finding:
    loss = facts.history.lost_brokers.get(broker)
    cause = Cause.BROKER_DOWN
    if loss is not None and loss.is_shutdown:
        cause = Cause.BROKER_STOPPED
    elif loss is None and is_never_seen(facts, broker):
        cause = Cause.BROKER_NEVER_SEEN
    return Finding(
        cause=cause,
        severity=Severity.WARNING,
        brokers=(broker,),
        since_ms=None if loss is None else loss.at_ms,
        values={"replicas": count_replicas(facts, broker)},
    )


def broker_finding(cause: Cause, severity: Severity, broker: int, **values: str | int) -> Finding:
    return Finding(cause=cause, severity=severity, brokers=(broker,), values=values)


def count_replicas(facts: ClusterFacts, broker: int) -> int:
    topics = facts.view.topics.values()
    return sum(broker in each.replicas for topic in topics for each in topic.partitions)


def address_of(facts: ClusterFacts, broker: int) -> str:
    found = facts.view.brokers[broker]  # type: ignore[index]
    return f"{found.host}:{found.port}"


def brokers_at_same_address(facts: ClusterFacts, broker: int) -> Iterator[int]:
    own = address_of(facts, broker)
    return (
        int(other)
        for other in facts.view.brokers
        if other != broker and address_of(facts, other) == own
    )


# ---- the cluster ----------------------------------------------------------------------------------------------


def find_unreachable_cluster(facts: ClusterFacts) -> Iterator[Finding]:
    registered = () if facts.registry is None else tuple(sorted(facts.registry.brokers))
    yield Finding(cause=Cause.NO_BROKER_ANSWERS, severity=Severity.ERROR, brokers=registered)


def find_controller(facts: ClusterFacts) -> Iterator[Finding]:
    controller = facts.controller
    if controller is None:
        yield Finding(cause=Cause.NO_CONTROLLER, severity=Severity.ERROR)
    elif facts.is_silent(controller):
        yield broker_finding(Cause.CONTROLLER_SILENT, Severity.ERROR, controller)
    elif facts.queue is ControllerQueue.STUCK:
        yield broker_finding(Cause.CONTROLLER_STUCK, Severity.ERROR, controller)


def find_registry(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.registry_error is not None:
        # This command may be the only one that cannot reach it.
        is_lost = facts.is_registry_lost or facts.controller is None
        severity = Severity.ERROR if is_lost else Severity.WARNING
        values: dict[str, str | int] = {
            "registry": facts.registry_name,
            "why": facts.registry_error,
            "is_lost": int(is_lost),
        }
        yield Finding(cause=Cause.REGISTRY_DOWN, severity=severity, values=values)


def find_left_throttles(facts: ClusterFacts) -> Iterator[Finding]:
    """Find throttled replicas although no partition moves: the command that set them was killed.

    A list `*` was not set by a reassignment. Without a controller, the reassignments are unknown.
    """
    if facts.reassignments or facts.controller is None or facts.is_silent(facts.controller):
        return
    for topic, settings in sorted(facts.topic_settings.items()):
        entries = settings.throttled_followers.replace(" ", "").split(",")
        numbers = {entry.partition(":")[0] for entry in entries}
        listed = sorted(TopicPartition(topic, int(each)) for each in numbers if each.isdigit())
        if listed:
            yield Finding(
                cause=Cause.THROTTLE_LEFT,
                severity=Severity.WARNING,
                topic=topic,
                partitions=tuple(listed),
            )


def find_offsets_topic(facts: ClusterFacts) -> Iterator[Finding]:
    """Find that groups cannot work: their topic does not exist, and there are too few brokers to create it."""
    factor = facts.settings.offsets_replication_factor
    brokers = len(facts.view.brokers)
    if CONSUMER_OFFSETS not in facts.view.topics and factor > brokers:
        values = {"factor": factor, "registered": brokers}
        yield Finding(cause=Cause.OFFSETS_TOPIC_IMPOSSIBLE, severity=Severity.ERROR, values=values)
