"""Partition assignors. The leader of a group assigns the partitions, based on the subscriptions of all members.

    range                 splits the partitions of each topic into one consecutive run per member
    cooperative-sticky    each member keeps its partitions as far as the balance allows; a partition that moves is first
                          revoked, and assigned in the next rebalance

    orders has 5 partitions, members a and b                 range: a 0 1 2, b 3 4
    c joins; cooperative-sticky had a 0 1 2 and b 3 4        2 is revoked from a; the next rebalance assigns it to c

cooperative-sticky takes two rebalances, rarely three if subscriptions differ. Members go on reading the partitions they
keep. The coordinator chooses an assignor that all members support.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.client.core import build_topics
from barnabas.model import TopicPartition
from barnabas.wire.consumer_protocol import ConsumerSubscription, TopicPartitions

RANGE = "range"
COOPERATIVE_STICKY = "cooperative-sticky"


class MemberSubscription(NamedTuple):
    """A member and its subscription. `instance_id` is set for a static member."""

    member_id: str
    subscription: ConsumerSubscription
    instance_id: str | None = None


Assignments = dict[str, list[TopicPartition]]
"""Member id → its partitions."""
PartitionCounts = Mapping[str, int]
"""Topic → number of partitions; 0 if the topic does not exist."""


def assign_range(members: Sequence[MemberSubscription], counts: PartitionCounts) -> Assignments:
    assignments: Assignments = {member.member_id: [] for member in members}
    # Static members are ordered by instance id, which survives a restart; the member id does not.
    in_order = sorted(
        members, key=lambda each: (each.instance_id is None, each.instance_id or each.member_id)
    )
    for topic in sorted(counts):
        subscribers = [each.member_id for each in in_order if topic in each.subscription.topics]
        if not subscribers:
            continue
        share, remainder = divmod(counts[topic], len(subscribers))
        start = 0
        for index, member in enumerate(subscribers):
            end = start + share + (index < remainder)
            assignments[member] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return assignments


def assign_cooperative_sticky(
    members: Sequence[MemberSubscription], counts: PartitionCounts
) -> Assignments:
    # A partition that changes its owner is left out until the next rebalance.
    owners = current_owners(members, counts)
    balanced = balance(members, counts, owners)
    return {
        member: [partition for partition in partitions if owners.get(partition, member) == member]
        for member, partitions in balanced.items()
    }


ASSIGNORS: dict[str, Callable[[Sequence[MemberSubscription], PartitionCounts], Assignments]] = {
    RANGE: assign_range,
    COOPERATIVE_STICKY: assign_cooperative_sticky,
}


def current_owners(
    members: Sequence[MemberSubscription], counts: PartitionCounts
) -> dict[TopicPartition, str]:
    """Return the member that owns each partition.

    If several members claim a partition, the one with the latest generation owns it. If two have that generation, the
    partition has no owner.
    """
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member, subscription, _ in members:
        for partition in flatten(subscription.owned_partitions):
            is_subscribed = partition.topic in subscription.topics
            if is_subscribed and partition.partition < counts.get(partition.topic, 0):
                claims.setdefault(partition, []).append((subscription.generation_id, member))
    owners = {}
    for partition, claimants in claims.items():
        newest = max(generation for generation, _ in claimants)
        latest = [member for generation, member in claimants if generation == newest]
        if len(latest) == 1:
            owners[partition] = latest[0]
    return owners


def balance(
    members: Sequence[MemberSubscription],
    counts: PartitionCounts,
    owners: Mapping[TopicPartition, str],
) -> Assignments:
    """Assign all partitions so that loads differ by at most one, as far as subscriptions allow, with few moves."""
    topics = {member.member_id: set(member.subscription.topics) for member in members}
    member_ids = sorted(topics)
    assignments: Assignments = {member: [] for member in member_ids}
    for partition, owner in sorted(owners.items()):
        assignments[owner].append(partition)
    subscribers = {
        topic: [member for member in member_ids if topic in topics[member]] for topic in counts
    }
    # Topics with few subscribers come first, while these members still have a small load.
    for topic in sorted(counts, key=lambda topic: (len(subscribers[topic]), topic)):
        for number in range(counts[topic] if subscribers[topic] else 0):
            if (partition := TopicPartition(topic, number)) not in owners:
                least_loaded = min(subscribers[topic], key=lambda member: len(assignments[member]))
                assignments[least_loaded].append(partition)
    while (move := find_move(assignments, topics, owners)) is not None:
        source, target, index = move
        assignments[target].append(assignments[source].pop(index))
    return {member: sorted(partitions) for member, partitions in assignments.items()}


def find_move(
    assignments: Assignments, topics: Mapping[str, set[str]], owners: Mapping[TopicPartition, str]
) -> tuple[str, str, int] | None:
    """Return a move (source, target, index in the source's list) that improves the balance, or None.

    The source has at least two partitions more than the target. The target is subscribed to the partition's topic.
    Partitions without an owner are moved first. Each move reduces the imbalance, so the number of moves is finite.
    """
    by_load = sorted(assignments, key=lambda member: len(assignments[member]))
    for source in reversed(by_load):
        for target in by_load:
            if len(assignments[source]) - len(assignments[target]) < 2:
                break
            partitions = assignments[source]
            movable = [at for at, each in enumerate(partitions) if each.topic in topics[target]]
            if movable:
                best = max(movable, key=lambda at: (partitions[at] not in owners, at))
                return source, target, best
    return None


def flatten(topics: Iterable[TopicPartitions]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic, numbers in topics for number in numbers]


def to_topic_partitions(partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    return build_topics(TopicPartitions, {each: each.partition for each in sorted(partitions)})
