"""Spread replicas, bytes and preferred leaders evenly over brokers, with few moves.

Replicas: while one broker has at least two replicas more than another, one replica moves from the first to the
second. If racks forbid a direct move, it moves along the shortest chain of brokers that have a permitted move. Without
racks the result is even within one replica, and no plan reaches that with fewer moves.

Bytes: two brokers exchange replicas of different size. An exchange is made only if it evens out at least half of the
bytes that it moves. Replica counts stay even.

Leaders: the replicas of a partition change their order, along the shortest chain of partitions. This moves no bytes. If
all partitions have the same number of replicas, the result is even within one leader.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from barnabas.model import TopicPartition
from barnabas.reassignment.draft import AssignmentDraft

TOLERANCE = 0.1
"""Brokers are even in bytes if they differ by at most this share of the mean."""
EXCHANGES_MAX = 10_000
NEIGHBOURS = 4
"""Replicas of similar size that are tried for each exchange."""

Chain = list[tuple[int, int]]
"""Moves (from, to) in which each move starts where the previous one ended."""


class Exchange(NamedTuple):
    """`moved` goes to the emptier broker and `returned`, if any, comes back. `evened` is the gap that it closes."""

    moved: TopicPartition
    returned: TopicPartition | None
    evened: int
    copied: int


def balance_draft(draft: AssignmentDraft, *, tolerance: float = TOLERANCE) -> None:
    """Spread racks, replicas, bytes and leaders evenly over the brokers of the draft."""
    repair_racks(draft)
    balance_replicas(draft, draft.brokers)
    balance_bytes(draft, tolerance)
    balance_leaders(draft, draft.replicas)


def repair_racks(draft: AssignmentDraft) -> None:
    """Move replicas of partitions that are on fewer racks than possible."""
    for partition, replicas in draft.replicas.items():
        while draft.spread(replicas) < min(len(replicas), draft.rack_count):
            racks = [draft.rack_of(broker) for broker in replicas]
            # The last replica on a shared rack moves, so that the preferred leader stays.
            source = next(
                broker for broker in reversed(replicas) if racks.count(draft.rack_of(broker)) > 1
            )
            kept = [broker for broker in replicas if broker != source]
            destination = draft.best_destination(partition, kept)
            if destination is None or draft.spread([*kept, destination]) <= draft.spread(replicas):
                break
            draft.move(partition, source, destination)


# ---- replicas -------------------------------------------------------------------------------------------------------


def balance_replicas(draft: AssignmentDraft, destinations: Collection[int]) -> None:
    """Even out the number of replicas. Replicas move only to `destinations`."""
    loads = {broker: draft.load(broker) for broker in draft.brokers}
    chosen: dict[tuple[int, int], TopicPartition | None] = {}

    def has_move(source: int, destination: int) -> bool:
        chosen[source, destination] = choose_partition(draft, source, destination)
        return chosen[source, destination] is not None

    while chain := find_chain(loads, destinations, has_move):
        is_first = True
        for source, destination in chain:
            # Later moves of a chain are chosen again: the first one may have changed the racks of a partition.
            partition = (
                chosen[source, destination]
                if is_first
                else choose_partition(draft, source, destination)
            )
            if partition is None:
                return
            draft.move(partition, source, destination)
            loads[source] -= 1
            loads[destination] += 1
            is_first = False


def choose_partition(
    draft: AssignmentDraft, source: int, destination: int
) -> TopicPartition | None:
    """Return the best partition to move, or None if no move is permitted.

    A topic with more partitions on the source than on the destination comes first. Then the size decides: the move
    should also even out the bytes.
    """
    wanted = max(0, draft.stored[source] - draft.stored[destination]) / 2
    counts, sizes = draft.topic_counts, draft.sizes
    spread_topics: dict[str, bool] = {}
    best: tuple[bool, float, int, TopicPartition] | None = None
    for partition in draft.hosted[source]:
        topic = partition.topic
        is_spread = spread_topics.get(topic)
        if is_spread is None:
            is_spread = counts[source, topic] <= counts[destination, topic]
            spread_topics[topic] = is_spread
        size = sizes[partition]
        distance = abs(size - wanted)
        if best is not None and (
            is_spread > best[0] or (is_spread == best[0] and distance > best[1])
        ):
            continue
        key = (is_spread, distance, size, partition)
        if (best is None or key < best) and draft.may_move(partition, source, destination):
            best = key
    return None if best is None else best[-1]


def find_chain(
    loads: Mapping[int, int], destinations: Collection[int], has_move: Callable[[int, int], bool]
) -> Chain:
    """Return the shortest chain of moves from a broker to one whose load is smaller by at least two; [] if none."""
    lowest = min((loads[broker] for broker in destinations), default=0)
    for start in sorted(loads, key=lambda broker: (-loads[broker], broker)):
        if loads[start] < lowest + 2:
            break
        came_from: dict[int, int] = {start: start}
        queue = deque([start])
        while queue:
            source = queue.popleft()
            for broker in sorted(destinations, key=lambda each: (loads[each], each)):
                if broker in came_from or not has_move(source, broker):
                    continue
                came_from[broker] = source
                queue.append(broker)
                if loads[broker] <= loads[start] - 2:
                    return trace_chain(came_from, broker)
    return []


def trace_chain(came_from: Mapping[int, int], end: int) -> Chain:
    chain: Chain = []
    while came_from[end] != end:
        chain.append((came_from[end], end))
        end = came_from[end]
    return chain[::-1]


# ---- bytes ----------------------------------------------------------------------------------------------------------


def balance_bytes(draft: AssignmentDraft, tolerance: float) -> None:
    """Exchange replicas between full and empty brokers until they differ by at most `tolerance` of the mean."""
    if not draft.brokers:
        return
    allowed = tolerance * sum(draft.stored[broker] for broker in draft.brokers) / len(draft.brokers)
    for _ in range(EXCHANGES_MAX):
        if not exchange_once(draft, allowed):
            return


def exchange_once(draft: AssignmentDraft, allowed: float) -> bool:
    order = sorted(draft.brokers, key=lambda broker: (draft.stored[broker], broker))
    for full in reversed(order):
        for empty in order:
            if draft.stored[full] - draft.stored[empty] <= allowed:
                break
            found = best_exchange(draft, full, empty)
            if found is not None:
                draft.move(found.moved, full, empty)
                if found.returned is not None:
                    draft.move(found.returned, empty, full)
                return True
    return False


def best_exchange(draft: AssignmentDraft, full: int, empty: int) -> Exchange | None:
    """Return the cheapest of the exchanges that even out much; None if none is worth its bytes."""
    gap = draft.stored[full] - draft.stored[empty]
    found: list[Exchange] = []
    returnable = sorted((draft.sizes[each], each) for each in draft.hosted[empty])
    is_single_allowed = draft.load(full) > draft.load(empty)
    for moved in sorted(draft.hosted[full]):
        if not draft.may_move(moved, full, empty):
            continue
        size = draft.sizes[moved]
        at = bisect_left(returnable, (size - gap // 2,))
        near = returnable[max(0, at - NEIGHBOURS) : at + NEIGHBOURS]
        options: list[tuple[int, TopicPartition | None]] = [(0, None)] if is_single_allowed else []
        options += [each for each in near if draft.may_move(each[1], empty, full)]
        for back, returned in options:
            evened = gap - abs(gap - 2 * (size - back))
            if evened > 0 and 2 * evened >= size + back:
                found.append(Exchange(moved, returned, evened, size + back))
    if not found:
        return None
    most = max(each.evened for each in found)
    return max(
        (each for each in found if 2 * each.evened >= most),
        key=lambda each: each.evened / each.copied,
    )


# ---- leaders --------------------------------------------------------------------------------------------------------


def balance_leaders(draft: AssignmentDraft, partitions: Iterable[TopicPartition]) -> None:
    """Even out the number of preferred leaders by reordering the replicas of `partitions`."""
    movable = set(partitions)
    led: dict[int, set[TopicPartition]] = {broker: set() for broker in draft.brokers}
    for partition, replicas in draft.replicas.items():
        if replicas[0] in led:
            led[replicas[0]].add(partition)

    def choose(source: int, destination: int) -> TopicPartition | None:
        """Partitions that the source did not lead before come first, then those that change anyway."""
        candidates = [each for each in led[source] & movable if destination in draft.replicas[each]]

        def cost(partition: TopicPartition) -> tuple[bool, bool, TopicPartition]:
            led_before = draft.layout.partitions[partition].replicas[0] == source
            return led_before, not draft.is_changed(partition), partition

        return min(candidates, key=cost, default=None)

    while chain := find_chain(
        {broker: len(found) for broker, found in led.items()},
        draft.brokers,
        lambda source, destination: choose(source, destination) is not None,
    ):
        for source, destination in chain:
            moved = choose(source, destination)
            assert moved is not None, "the moves of a chain concern different brokers"
            draft.make_leader(moved, destination)
            led[source].remove(moved)
            led[destination].add(moved)
