"""A plan: the new replicas of partitions. Checks, the bytes to copy, the duration, and batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.reassignment.goals import absence
from barnabas.reassignment.layout import (
    Assignment,
    BrokerLoad,
    Layout,
    PlacedPartition,
    ReplicaIds,
    broker_loads,
)

PROBLEMS_SHOWN_MAX = 5


class ReplicaCopy(NamedTuple):
    """A new replica. Its broker copies the log of the partition from the leader."""

    partition: TopicPartition
    source: int
    destination: int
    size: int


class ReassignmentPlan(Struct, frozen=True, kw_only=True):
    """`targets` holds only partitions whose replicas change, ordered by partition."""

    layout: Layout
    targets: dict[TopicPartition, ReplicaIds]

    @property
    def copies(self) -> list[ReplicaCopy]:
        return [
            ReplicaCopy(partition, placed.leader, broker, placed.size)
            for partition, target in self.targets.items()
            for placed in [self.layout.partitions[partition]]
            for broker in target
            if broker not in placed.replicas
        ]

    @property
    def copied_bytes(self) -> int:
        return sum(copy.size for copy in self.copies)

    @property
    def reordered(self) -> list[TopicPartition]:
        """Partitions that keep their brokers and only change the order: no bytes are copied."""
        return [
            each
            for each, target in self.targets.items()
            if set(target) == set(self.layout.partitions[each].replicas)
        ]

    def seconds_at(self, throttle: int) -> float:
        """Return the shortest possible duration if each broker sends and receives `throttle` bytes per second."""
        sent: Counter[int] = Counter()
        received: Counter[int] = Counter()
        for copy in self.copies:
            sent[copy.source] += copy.size
            received[copy.destination] += copy.size
        return max([0, *sent.values(), *received.values()]) / throttle

    def loads(self) -> dict[int, tuple[BrokerLoad, BrokerLoad]]:
        """Return the load of every broker before and after the plan."""
        assignment = self.layout.assignment
        brokers = sorted(self.layout.known_brokers | {b for t in self.targets.values() for b in t})
        before = broker_loads(self.layout, assignment, brokers)
        after = broker_loads(self.layout, {**assignment, **self.targets}, brokers)
        return {broker: (before[broker], after[broker]) for broker in brokers}

    def batches(self, size: int | None) -> Iterator[dict[TopicPartition, ReplicaIds]]:
        """Yield the targets in batches of at most `size` partitions; all at once if None."""
        items = list(self.targets.items())
        step = size or len(items) or 1
        for at in range(0, len(items), step):
            yield dict(items[at : at + step])


def build_plan(layout: Layout, targets: Assignment) -> ReassignmentPlan:
    """Check the targets and build a plan. Raises ApiError INVALID_REPLICA_ASSIGNMENT with all reasons against it."""
    problems = find_problems(layout, targets)
    if problems:
        shown = "; ".join(problems[:PROBLEMS_SHOWN_MAX])
        more = len(problems) - PROBLEMS_SHOWN_MAX
        suffix = f"; and {more} more problems" if more > 0 else ""
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{shown}{suffix}")
    changed = {
        each: tuple(target)
        for each, target in sorted(targets.items())
        if tuple(target) != layout.partitions[each].replicas
    }
    return ReassignmentPlan(layout=layout, targets=changed)


def find_problems(layout: Layout, targets: Assignment) -> list[str]:
    """Return the reasons against the targets, one for each partition that has any."""
    found = []
    for partition, target in sorted(targets.items()):
        placed = layout.partitions.get(partition)
        problem = "does not exist" if placed is None else find_problem(layout, placed, target)
        if problem:
            found.append(f"{partition} {problem}")
    return found


def find_problem(layout: Layout, placed: PlacedPartition, target: Sequence[int]) -> str:
    """Return the reason against the new replicas of one partition, or an empty text."""
    if not target:
        return "would have no replica"
    duplicates = sorted(broker for broker, count in Counter(target).items() if count > 1)
    if duplicates:
        return f"would have two replicas on broker {duplicates[0]}"
    added = [broker for broker in target if broker not in placed.replicas]
    for broker in added:
        if broker not in layout.brokers:
            return f"would move to broker {broker}, which {absence(layout, broker)}"
    live_in_sync = [broker for broker in placed.isr if broker in layout.brokers]
    if added and not live_in_sync:
        return "has no leader: new replicas have nothing to copy from"
    if not added and len(target) < len(placed.replicas):
        return last_replica_problem(placed, target, live_in_sync)
    return ""


def last_replica_problem(
    placed: PlacedPartition, target: Sequence[int], live_in_sync: Sequence[int]
) -> str:
    """Return the problem if a plan only removes replicas and keeps none that is in sync and alive."""
    if any(broker in live_in_sync for broker in target):
        return ""
    if live_in_sync:
        lost = ", ".join(map(str, live_in_sync))
        return f"would lose its last in-sync replica, on broker {lost}"
    if any(broker in placed.isr for broker in target):
        return ""
    return "would lose its last in-sync replica"
