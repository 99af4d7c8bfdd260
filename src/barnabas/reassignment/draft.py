"""An assignment under construction: replicas can be moved, added and removed. It keeps the load of each broker.

A partition should be on as many racks as possible: on min(replicas, racks). A broker without a rack counts as a rack of
its own. No move makes a partition worse in this respect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from barnabas.model import TopicPartition
from barnabas.reassignment.layout import Layout, ReplicaIds


class AssignmentDraft:
    """`brokers` are the brokers that replicas may move to, with their racks; by default all live brokers."""

    def __init__(self, layout: Layout, brokers: Mapping[int, str | None] | None = None) -> None:
        self.brokers = dict(sorted((layout.brokers if brokers is None else brokers).items()))
        self.racks = {**layout.brokers, **self.brokers}
        self.layout = layout
        self.replicas = {
            each: list(placed.replicas) for each, placed in sorted(layout.partitions.items())
        }
        self.sizes = {each: placed.size for each, placed in layout.partitions.items()}
        self.hosted: dict[int, set[TopicPartition]] = {broker: set() for broker in self.brokers}
        self.stored: Counter[int] = Counter()
        self.topic_counts: Counter[tuple[int, str]] = Counter()
        self.rack_count = len({self.rack_of(broker) for broker in self.brokers})
        for partition, replicas in self.replicas.items():
            for broker in replicas:
                self.count(partition, broker)

    def rack_of(self, broker: int) -> str | int:
        return self.racks.get(broker) or broker

    # ---- changes --------------------------------------------------------------------------------------------------

    def count(self, partition: TopicPartition, broker: int) -> None:
        self.hosted.setdefault(broker, set()).add(partition)
        self.stored[broker] += self.sizes[partition]
        self.topic_counts[broker, partition.topic] += 1

    def discount(self, partition: TopicPartition, broker: int) -> None:
        self.hosted[broker].remove(partition)
        self.stored[broker] -= self.sizes[partition]
        self.topic_counts[broker, partition.topic] -= 1

    def move(self, partition: TopicPartition, source: int, destination: int) -> None:
        """Replace a replica. The new one takes its position: if the old one was preferred leader, the new one is."""
        replicas = self.replicas[partition]
        replicas[replicas.index(source)] = destination
        self.discount(partition, source)
        self.count(partition, destination)

    def add(self, partition: TopicPartition, broker: int) -> None:
        self.replicas[partition].append(broker)
        self.count(partition, broker)

    def remove(self, partition: TopicPartition, broker: int) -> None:
        self.replicas[partition].remove(broker)
        self.discount(partition, broker)

    def make_leader(self, partition: TopicPartition, broker: int) -> None:
        """Make a replica the preferred leader. It changes places with the current one."""
        replicas = self.replicas[partition]
        at = replicas.index(broker)
        replicas[0], replicas[at] = replicas[at], replicas[0]

    # ---- queries --------------------------------------------------------------------------------------------------

    def load(self, broker: int) -> int:
        return len(self.hosted[broker])

    def spread(self, replicas: Sequence[int]) -> int:
        """Return the number of racks with a replica."""
        return len({self.rack_of(broker) for broker in replicas})

    def may_move(self, partition: TopicPartition, source: int, destination: int) -> bool:
        """Whether the destination has no replica of the partition, and the move respects racks."""
        replicas = self.replicas[partition]
        if destination in replicas:
            return False
        after = [destination if broker == source else broker for broker in replicas]
        needed = min(self.spread(replicas), len(replicas), self.rack_count)
        return self.spread(after) >= needed

    def best_destination(self, partition: TopicPartition, kept: Sequence[int]) -> int | None:
        """Return the best broker for a new replica next to `kept`; None if every broker has one.

        A new rack counts most, then few replicas, few partitions of the same topic, and few bytes.
        """
        candidates = [broker for broker in self.brokers if broker not in kept]
        if not candidates:
            return None
        return min(
            candidates,
            key=lambda broker: (
                -self.spread([*kept, broker]),
                self.load(broker),
                self.topic_counts[broker, partition.topic],
                self.stored[broker],
                broker,
            ),
        )

    def is_changed(self, partition: TopicPartition) -> bool:
        return tuple(self.replicas[partition]) != self.layout.partitions[partition].replicas

    def changes(self) -> dict[TopicPartition, ReplicaIds]:
        """Return the new replicas of the partitions whose replicas or order changed."""
        return {each: tuple(self.replicas[each]) for each in self.replicas if self.is_changed(each)}
