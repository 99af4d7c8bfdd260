"""The goals of a plan. Each function returns the new replicas of the partitions that change.

Functions raise ApiError INVALID_REPLICA_ASSIGNMENT if the goal cannot be reached, with the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.reassignment.balance import (
    TOLERANCE,
    balance_draft,
    balance_leaders,
    balance_replicas,
)
from barnabas.reassignment.draft import AssignmentDraft
from barnabas.reassignment.layout import Layout, ReplicaIds

Targets = dict[TopicPartition, ReplicaIds]


def unreachable_goal(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


class TooFewBrokers(ApiError):
    """Partitions have more replicas than brokers would be left. `topics` are the topics of these partitions."""

    def __init__(self, draft: AssignmentDraft, partition: TopicPartition) -> None:
        replicas, self.brokers = len(draft.replicas[partition]), len(draft.brokers)
        remaining = "1 broker" if self.brokers == 1 else f"{self.brokers} brokers"
        if replicas == 1:
            why = f"{partition} has 1 replica, but no broker would be left for it"
        else:
            why = (
                f"{partition} has {replicas} replicas, but only {remaining} would be left for them"
            )
        super().__init__(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
        crowded = [each for each, found in draft.replicas.items() if len(found) > self.brokers]
        self.topics = sorted({each.topic for each in [partition, *crowded]})


def balance_all(layout: Layout, *, tolerance: float = TOLERANCE) -> Targets:
    """Spread all partitions evenly over the live brokers. Replicas on other brokers stay there."""
    draft = AssignmentDraft(layout)
    balance_draft(draft, tolerance=tolerance)
    return draft.changes()


def move_to_brokers(layout: Layout, brokers: Collection[int]) -> Targets:
    """Place all partitions on these brokers only, and spread them evenly. Replicas that are there already stay."""
    check_live(layout, brokers)
    draft = AssignmentDraft(layout, {each: layout.brokers[each] for each in brokers})
    vacate(draft, [broker for broker in draft.hosted if broker not in draft.brokers])
    balance_draft(draft)
    return draft.changes()


def fill_brokers(layout: Layout, added: Collection[int]) -> Targets:
    """Give added brokers their share of replicas and leaders. Replicas move only to these brokers."""
    check_live(layout, added)
    draft = AssignmentDraft(layout)
    balance_replicas(draft, sorted(added))
    balance_leaders(draft, draft.replicas)
    return draft.changes()


def drain_brokers(layout: Layout, drained: Collection[int]) -> Targets:
    """Move all replicas away from these brokers, which may be down. No other replica moves."""
    unknown = sorted(set(drained) - layout.known_brokers)
    if unknown:
        raise unreachable_goal(
            f"broker {unknown[0]} is not alive and has no replica; live brokers: {live_text(layout)}"
        )
    rest = {each: rack for each, rack in layout.brokers.items() if each not in drained}
    draft = AssignmentDraft(layout, rest)
    vacate(draft, sorted(drained))
    balance_leaders(draft, draft.changes())
    return draft.changes()


def change_replication_factor(layout: Layout, factor: int) -> Targets:
    """Add or remove replicas until every partition has `factor` of them."""
    if factor > len(layout.brokers):
        raise unreachable_goal(
            f"replication factor {factor} needs {factor} live brokers; live brokers: {live_text(layout)}"
        )
    draft = AssignmentDraft(layout)
    for partition, replicas in draft.replicas.items():
        while len(replicas) < factor:
            destination = draft.best_destination(partition, replicas)
            assert destination is not None, "there are at least `factor` live brokers"
            draft.add(partition, destination)
        while len(replicas) > factor:
            draft.remove(partition, least_useful_replica(draft, partition))
    balance_leaders(draft, draft.changes())
    return draft.changes()


def vacate(draft: AssignmentDraft, left: Iterable[int]) -> None:
    """Move all replicas from these brokers to the best brokers of the draft, the largest partitions first."""
    for broker in left:
        hosted = draft.hosted.get(broker, set())
        for partition in sorted(hosted, key=lambda each: (-draft.sizes[each], each)):
            kept = [each for each in draft.replicas[partition] if each != broker]
            destination = draft.best_destination(partition, kept)
            if destination is None:
                raise TooFewBrokers(draft, partition)
            draft.move(partition, broker, destination)


def least_useful_replica(draft: AssignmentDraft, partition: TopicPartition) -> int:
    """Return the replica to remove. The last in-sync replica on a live broker is never removed.

    A replica that is down or out of sync goes first, then one that shares its rack, then a follower before the
    preferred leader, then the one on the fullest broker.
    """
    replicas = draft.replicas[partition]
    isr = draft.layout.partitions[partition].isr
    in_sync = [each for each in replicas if each in isr and each in draft.brokers]

    def usefulness(broker: int) -> tuple[int, ...]:
        rest = [each for each in replicas if each != broker]
        return (
            in_sync == [broker],
            broker in draft.brokers,
            broker in isr,
            -draft.spread(rest),
            broker == replicas[0],
            -draft.load(broker),
            broker,
        )

    return min(replicas, key=usefulness)


def check_live(layout: Layout, brokers: Collection[int]) -> None:
    missing = sorted(set(brokers) - layout.brokers.keys())
    if missing or not brokers:
        what = (
            f"broker {missing[0]} {absence(layout, missing[0])}"
            if missing
            else "no broker is given"
        )
        raise unreachable_goal(f"{what}; live brokers: {live_text(layout)}")


def absence(layout: Layout, broker: int) -> str:
    return "is not alive" if broker in layout.known_brokers else "does not exist"


def live_text(layout: Layout) -> str:
    return ", ".join(map(str, sorted(layout.brokers))) or "none"
