"""Who of a group reads which partitions. The group's leader decides, with what every member said of itself.

    range                 topic by topic, the partitions in order, cut into as many runs as there are members
    cooperative-sticky    everyone keeps what it has, as far as that is fair; what moves is first given up, then given

    orders has 5 partitions, members a and b       range: a 0 1 2, b 3 4
    c joins, a 0 1 2 and b 3 4 under sticky        2 leaves a at once; c gets it in the rebalance that follows

The second takes two rebalances, seldom a third where members read different topics, but nobody stops reading what it
keeps. Every member of a group has to run the same
one, and the coordinator chooses it among those that all of them offer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.model import TopicPartition
from barnabas.wire.consumer_protocol import Subscription, TopicPartitions

RANGE = "range"
COOPERATIVE_STICKY = "cooperative-sticky"


class Candidate(NamedTuple):
    """A member, as the leader sees it."""

    member_id: str
    subscription: Subscription
    instance_id: str | None = None


Shares = dict[str, list[TopicPartition]]
"""Member id → what it is to read."""
Counts = Mapping[str, int]
"""Topic → how many partitions it has; none, if it does not exist."""


def assign_range(candidates: Sequence[Candidate], counts: Counts) -> Shares:
    shares: Shares = {candidate.member_id: [] for candidate in candidates}
    # A member that has a name of its own keeps its place when it comes back under another member id.
    in_order = sorted(
        candidates, key=lambda each: (each.instance_id is None, each.instance_id or each.member_id)
    )
    for topic in sorted(counts):
        readers = [each.member_id for each in in_order if topic in each.subscription.topics]
        if not readers:
            continue
        least, longer = divmod(counts[topic], len(readers))
        start = 0
        for index, reader in enumerate(readers):
            end = start + least + (index < longer)
            shares[reader] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return shares


def assign_cooperative_sticky(candidates: Sequence[Candidate], counts: Counts) -> Shares:
    owners = rightful_owners(candidates, counts)
    fair = balanced(candidates, counts, owners)
    return {
        member: [partition for partition in partitions if owners.get(partition, member) == member]
        for member, partitions in fair.items()
    }


ASSIGNORS: dict[str, Callable[[Sequence[Candidate], Counts], Shares]] = {
    RANGE: assign_range,
    COOPERATIVE_STICKY: assign_cooperative_sticky,
}


def rightful_owners(candidates: Sequence[Candidate], counts: Counts) -> dict[TopicPartition, str]:
    """Who reads a partition now. Of two that say so, the one with the later generation; with the same, nobody."""
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member, subscription, _ in candidates:
        for partition in flat(subscription.owned_partitions):
            wanted = partition.topic in subscription.topics
            if wanted and partition.partition < counts.get(partition.topic, 0):
                claims.setdefault(partition, []).append((subscription.generation_id, member))
    owners = {}
    for partition, claimed in claims.items():
        newest = max(generation for generation, _ in claimed)
        members = [member for generation, member in claimed if generation == newest]
        if len(members) == 1:
            owners[partition] = members[0]
    return owners


def balanced(
    candidates: Sequence[Candidate], counts: Counts, owners: Mapping[TopicPartition, str]
) -> Shares:
    """Shares that differ by one at most, as far as the subscriptions allow, with as few moves as it takes."""
    topics = {candidate.member_id: set(candidate.subscription.topics) for candidate in candidates}
    members = sorted(topics)
    shares: Shares = {member: [] for member in members}
    for partition, owner in sorted(owners.items()):
        shares[owner].append(partition)
    readers = {topic: [member for member in members if topic in topics[member]] for topic in counts}
    # What few can read comes first: it would find them with their hands full.
    for topic in sorted(counts, key=lambda topic: (len(readers[topic]), topic)):
        for number in range(counts[topic] if readers[topic] else 0):
            if (partition := TopicPartition(topic, number)) not in owners:
                least = min(readers[topic], key=lambda member: len(shares[member]))
                shares[least].append(partition)
    while (move := fairer_move(shares, topics, owners)) is not None:
        giver, taker, index = move
        shares[taker].append(shares[giver].pop(index))
    return {member: sorted(partitions) for member, partitions in shares.items()}


def fairer_move(
    shares: Shares, topics: Mapping[str, set[str]], owners: Mapping[TopicPartition, str]
) -> tuple[str, str, int] | None:
    """From one who has at least two more than another that could read it too; rather what nobody reads yet. Each move
    makes the shares more alike, so there is an end to them."""
    by_load = sorted(shares, key=lambda member: len(shares[member]))
    for giver in reversed(by_load):
        for taker in by_load:
            if len(shares[giver]) - len(shares[taker]) < 2:
                break
            mine = shares[giver]
            movable = [at for at, each in enumerate(mine) if each.topic in topics[taker]]
            if movable:
                return giver, taker, max(movable, key=lambda at: (mine[at] not in owners, at))
    return None


def flat(grouped: Iterable[TopicPartitions]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic, numbers in grouped for number in numbers]


def grouped(partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    return tuple(TopicPartitions(topic, tuple(numbers)) for topic, numbers in by_topic.items())
