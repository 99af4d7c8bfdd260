"""Rules for topics: their partitions, an unfinished deletion, colliding names, invalid znodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from barnabas.client.view import PartitionView
from barnabas.explain.facts import ClusterFacts, ControllerQueue
from barnabas.explain.finding import Cause, Finding, Severity, merge_findings
from barnabas.explain.partitions import explain_partition, imbalance_by_broker
from barnabas.metadata.znodes import topic_path
from barnabas.model import NO_LEADER, TopicPartition


def explain_topic(facts: ClusterFacts, topic: str) -> list[Finding]:
    """Return the problems of a topic, which may be known to the metadata, the registry or the history only."""
    found = [*find_deletion(facts, topic), *find_invalid_znode(facts, topic)]
    if not any(each.cause is Cause.MARKER_WITHOUT_TOPIC for each in found):
        found += find_collision(facts, topic)
    if not is_being_deleted(facts, topic):
        found += explain_partitions(facts, [topic])
    return merge_findings(found)


def explain_partitions(
    facts: ClusterFacts, topics: Iterable[str], number: int | None = None
) -> Iterator[Finding]:
    """Yield the problems of all partitions of these topics, or of one partition number."""
    imbalance = imbalance_by_broker(facts)
    for name in topics:
        for seen in (*known_partitions(facts, name), *unled_partitions(facts, name)):
            if number is None or seen.partition == number:
                yield from explain_partition(facts, name, seen, imbalance)


def known_partitions(facts: ClusterFacts, topic: str) -> tuple[PartitionView, ...]:
    known = facts.view.topics.get(topic)
    return () if known is None else known.partitions


def unled_partitions(facts: ClusterFacts, topic: str) -> Iterator[PartitionView]:
    """Yield the partitions that only the registry knows: they never had a leader, so brokers do not know them."""
    assignment = None if facts.registry is None else facts.registry.topics.get(topic)
    if assignment is not None:
        known = {each.partition for each in known_partitions(facts, topic)}
        for number, each in assignment.partitions.items():
            if number not in known:
                yield PartitionView(
                    partition=number,
                    leader=NO_LEADER,
                    leader_epoch=-1,
                    replicas=each.replicas,
                    isr=(),
                )


def explain_one_partition(facts: ClusterFacts, partition: TopicPartition) -> list[Finding]:
    topic, number = partition
    found = [*find_deletion(facts, topic), *find_invalid_znode(facts, topic)]
    if not is_being_deleted(facts, topic):
        found += explain_partitions(facts, [topic], number)
    return merge_findings(found)


# ---- deletions ------------------------------------------------------------------------------------------------


def marked_topics(facts: ClusterFacts) -> Mapping[str, int]:
    """Return topic → time of the request. The registry knows; without it, the history."""
    if facts.registry is not None:
        return facts.registry.markers
    pending = facts.history.deletions
    return {name: each.at_ms for name, each in pending.items() if name not in facts.view.topics}


def is_being_deleted(facts: ClusterFacts, topic: str) -> bool:
    return topic in marked_topics(facts)


def find_deletion(facts: ClusterFacts, topic: str) -> Iterator[Finding]:
    deletions = marked_topics(facts)
    if topic not in deletions:
        return
    since_ms = deletions[topic]
    requested = facts.history.deletions.get(topic)
    values: dict[str, str | int] = {}
    if requested is not None:
        since_ms = min(since_ms, requested.at_ms)
        values["by"] = requested.by or "a client without a name"
    cause, brokers, more = deletion_cause(facts, topic)
    is_error = cause not in (Cause.DELETION_RUNNING, Cause.MARKER_WITHOUT_TOPIC)
    yield Finding(
        cause=cause,
        severity=Severity.WARNING if is_error else Severity.NOTE,
        topic=topic,
        brokers=brokers,
        since_ms=since_ms,
        values={**values, **more},
    )


def deletion_cause(
    facts: ClusterFacts, topic: str
) -> tuple[Cause, tuple[int, ...], Mapping[str, str | int]]:
    """Return why a deletion is not finished, and the brokers that are waited for."""
    assigned = assigned_brokers(facts, topic)
    if assigned is None:
        return Cause.MARKER_WITHOUT_TOPIC, (), {}
    if not facts.settings.is_delete_enabled:
        return Cause.DELETION_DISABLED, (), {}
    if (
        facts.controller is None
        or facts.queue is ControllerQueue.STUCK
        or facts.is_silent(facts.controller)
    ):
        return Cause.DELETION_WAITS_FOR_CONTROLLER, (), {}
    down = [each for each in assigned if not facts.is_registered(each)]
    if down:
        return Cause.DELETION_WAITS_FOR_BROKER, tuple(down), {}
    silent = [each for each in assigned if facts.is_silent(each)]
    if silent:
        return Cause.DELETION_WAITS_FOR_SILENT_BROKER, tuple(silent), {}
    failed = [each for each in assigned if facts.failed_dirs(each)]
    if failed:
        dirs = ", ".join(path for each in failed for path in facts.failed_dirs(each))
        return Cause.DELETION_WAITS_FOR_LOG_DIR, tuple(failed), {"dirs": dirs}
    return Cause.DELETION_RUNNING, tuple(assigned), {}


def assigned_brokers(facts: ClusterFacts, topic: str) -> list[int] | None:
    """Return the brokers that may still have a replica; None if the topic has no znode."""
    if facts.registry is not None:
        assignment = facts.registry.topics.get(topic)
        if assignment is None:
            return None
        return sorted(
            {int(each) for part in assignment.partitions.values() for each in part.replicas}
        )
    return list(facts.history.deletions[topic].waits_for)


# ---- names and znodes -----------------------------------------------------------------------------------------


def find_collision(facts: ClusterFacts, topic: str) -> Iterator[Finding]:
    """Find topics whose names differ only in '.' and '_': their metrics have the same name."""
    plain = topic.replace(".", "_")
    others = [
        name for name in facts.view.topics if name != topic and name.replace(".", "_") == plain
    ]
    if others:
        yield Finding(
            cause=Cause.TOPIC_NAMES_COLLIDE,
            severity=Severity.NOTE,
            topic=topic,
            values={"other": min(others)},
        )


def find_collisions(facts: ClusterFacts) -> Iterator[Finding]:
    """Find all colliding names, one finding for each group of names."""
    by_plain_name: dict[str, list[str]] = {}
    for name in sorted(facts.view.topics):
        by_plain_name.setdefault(name.replace(".", "_"), []).append(name)
    for names in by_plain_name.values():
        if len(names) > 1:
            yield from find_collision(facts, names[-1])


def find_invalid_znode(facts: ClusterFacts, topic: str) -> Iterator[Finding]:
    invalid = {} if facts.registry is None else facts.registry.invalid
    if topic in invalid:
        yield Finding(
            cause=Cause.TOPIC_ZNODE_INVALID,
            severity=Severity.ERROR,
            topic=topic,
            values={"path": topic_path(topic), "why": invalid[topic]},
        )
