"""Assignors of the new consumer protocol: the broker assigns the partitions of a group to its members.

    range      each topic on its own: consecutive partitions, so that partition n of two topics goes to one member
    uniform    all topics together: members get equal numbers of partitions, and keep what they have if possible

Every partition of a subscribed topic is assigned to exactly one member that subscribes to it. The result depends on the
arguments only. Kafka's assignors have the same names and goals; where several results are equally good, Kafka's choice
depends on hash tables, and the one here on the order of member ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from barnabas.groups.consumer_records import NO_PARTITIONS, Assignment

PartitionId = tuple[UUID, int]
PartitionCounts = Mapping[UUID, int]
Owners = dict[PartitionId, str]


class AssigneeSpec(NamedTuple):
    """A member to assign partitions to: its topics, and its current target assignment."""

    topics: frozenset[UUID]
    assigned: Assignment = NO_PARTITIONS
    instance_id: str | None = None


Assignees = Mapping[str, AssigneeSpec]
Assignor = Callable[[Assignees, PartitionCounts], dict[str, Assignment]]


def assign_range(members: Assignees, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    """Assign each topic on its own. The first members get one partition more if it does not divide evenly.

    5 partitions, members a and b: a gets 0, 1, 2 and b gets 3, 4. Static members come first, in order of their instance
    ids, so that their ranges survive a restart with new member ids.
    """
    order = sorted(
        members,
        key=lambda each: (members[each].instance_id is None, members[each].instance_id or each),
    )
    assignments: dict[str, dict[UUID, frozenset[int]]] = {each: {} for each in members}
    for topic_id, count in sorted(partition_counts.items()):
        subscribers = [each for each in order if topic_id in members[each].topics]
        start = 0
        for at, member_id in enumerate(subscribers):
            end = start + count // len(subscribers) + (at < count % len(subscribers))
            if end > start:
                assignments[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assignments)


def assign_uniform(members: Assignees, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    """Assign equal numbers of partitions, and move as few as possible."""
    subscriptions = {each.topics for each in members.values()}
    subscribed = frozenset[UUID]().union(*subscriptions)
    counts = {each: count for each, count in partition_counts.items() if each in subscribed}
    owners = kept_partitions(members, counts)
    if len({topics.intersection(counts) for topics in subscriptions}) <= 1:
        fill_to_quota(members, counts, owners)
    else:
        assign_to_least_loaded(members, counts, owners)
    return group_by_member(members, owners)


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""By the name that a member requests. The first is the default."""
DEFAULT_ASSIGNOR = "uniform"


# ---- uniform


def kept_partitions(members: Assignees, counts: PartitionCounts) -> Owners:
    """Return the partitions that exist and that a member owns and still subscribes to."""
    owners: Owners = {}
    for member_id, spec in sorted(members.items()):
        for topic_id, partitions in sorted(spec.assigned.items()):
            if topic_id in spec.topics:
                for partition in sorted(partitions):
                    if partition < counts.get(topic_id, 0):
                        owners.setdefault((topic_id, partition), member_id)
    return owners


def fill_to_quota(members: Assignees, counts: PartitionCounts, owners: Owners) -> None:
    """Assign partitions if all members subscribe to the same topics.

    7 partitions, 3 members: quotas 3, 2, 2. The members that own most get the larger quotas, so that they keep it. Each
    member gives up what exceeds its quota; then each member is filled up to its quota.
    """
    owned: dict[str, list[PartitionId]] = {each: [] for each in sorted(members)}
    for partition, member_id in owners.items():
        owned[member_id].append(partition)
    total = sum(counts.values())
    quota, extra = divmod(total, len(members)) if members else (0, 0)
    by_size = sorted(owned, key=lambda each: -len(owned[each]))
    quotas = {each: quota + (at < extra) for at, each in enumerate(by_size)}
    for member_id, partitions in owned.items():
        for surplus in partitions[quotas[member_id] :]:
            del owners[surplus]
    unassigned = iter([each for each in all_partitions(counts) if each not in owners])
    for member_id, partitions in owned.items():
        for _ in range(quotas[member_id] - len(partitions)):
            owners[next(unassigned)] = member_id


def assign_to_least_loaded(members: Assignees, counts: PartitionCounts, owners: Owners) -> None:
    """Assign partitions if members subscribe to different topics.

    First assigns the partitions without an owner, those with the fewest possible owners first. Then moves a partition
    whenever its owner has at least two partitions more than another subscriber. Each move makes the sizes more equal,
    so this ends.
    """
    subscribers = subscriber_bits(members)
    loads = MemberLoads(members, owners)
    order = sorted(
        all_partitions(counts),
        key=lambda each: (subscribers[each[0]].bit_count(), -counts[each[0]]),
    )
    for partition in order:
        if partition not in owners:
            owners[partition] = loads.least_loaded(subscribers[partition[0]])
            loads.change(owners[partition], 1)
    has_moved = True
    while has_moved:
        has_moved = False
        for partition in order:
            before, after = owners[partition], loads.least_loaded(subscribers[partition[0]])
            if loads.sizes[before] > loads.sizes[after] + 1:
                owners[partition] = after
                loads.change(before, -1)
                loads.change(after, 1)
                has_moved = True


def subscriber_bits(members: Assignees) -> dict[UUID, int]:
    """Return the subscribers of each topic as an integer: bit n is the n-th member in order of ids."""
    by_topics: defaultdict[frozenset[UUID], int] = defaultdict(int)
    for at, member_id in enumerate(sorted(members)):
        by_topics[members[member_id].topics] |= 1 << at
    bits: defaultdict[UUID, int] = defaultdict(int)
    for topics, subscribers in by_topics.items():
        for topic_id in topics:
            bits[topic_id] |= subscribers
    return bits


class MemberLoads:
    """Number of partitions of each member, and the members with each number, as bits.

    Few numbers are in use at a time, so `least_loaded` takes a few operations on integers, even with many members.
    """

    def __init__(self, members: Assignees, owners: Owners) -> None:
        self.order = sorted(members)
        self.bits = {each: 1 << at for at, each in enumerate(self.order)}
        self.sizes = dict.fromkeys(self.order, 0)
        for member_id in owners.values():
            self.sizes[member_id] += 1
        self.by_size: defaultdict[int, int] = defaultdict(int)
        for member_id, size in self.sizes.items():
            self.by_size[size] |= self.bits[member_id]

    def change(self, member_id: str, difference: int) -> None:
        bit, size = self.bits[member_id], self.sizes[member_id]
        self.by_size[size] ^= bit
        if not self.by_size[size]:
            del self.by_size[size]
        self.sizes[member_id] = size + difference
        self.by_size[size + difference] |= bit

    def least_loaded(self, subscribers: int) -> str:
        """Return the subscriber with the fewest partitions, the first of several in order of ids."""
        found = next(
            found for size in sorted(self.by_size) if (found := self.by_size[size] & subscribers)
        )
        return self.order[(found & -found).bit_length() - 1]


def all_partitions(counts: PartitionCounts) -> list[PartitionId]:
    return [
        (topic_id, partition)
        for topic_id, count in sorted(counts.items())
        for partition in range(count)
    ]


def group_by_member(members: Assignees, owners: Owners) -> dict[str, Assignment]:
    partitions: defaultdict[str, defaultdict[UUID, set[int]]] = defaultdict(
        lambda: defaultdict(set)
    )
    for (topic_id, partition), member_id in owners.items():
        partitions[member_id][topic_id].add(partition)
    return {
        member_id: {
            topic_id: frozenset(found) for topic_id, found in sorted(partitions[member_id].items())
        }
        for member_id in members
    }
