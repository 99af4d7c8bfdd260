"""The placement of replicas in a cluster, and the load of each broker."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from barnabas.model import NO_LEADER, TopicPartition

ReplicaIds = tuple[int, ...]
"""Broker ids; the first is the preferred leader."""
Assignment = Mapping[TopicPartition, ReplicaIds]


class PlacedPartition(Struct, frozen=True, kw_only=True):
    """A partition with its replicas. `size` is the size of its log in bytes."""

    replicas: ReplicaIds
    isr: ReplicaIds
    leader: int = NO_LEADER
    size: int = 0


class Layout(Struct, frozen=True, kw_only=True):
    """A cluster before a reassignment. `brokers` maps live brokers to their racks."""

    brokers: Mapping[int, str | None]
    partitions: Mapping[TopicPartition, PlacedPartition]

    @property
    def assignment(self) -> dict[TopicPartition, ReplicaIds]:
        return {each: placed.replicas for each, placed in self.partitions.items()}

    @property
    def known_brokers(self) -> set[int]:
        """Live brokers, and all brokers with a replica."""
        assigned = {broker for each in self.partitions.values() for broker in each.replicas}
        return assigned | self.brokers.keys()

    def only(self, topics: Collection[str]) -> Layout:
        """Return the layout with the partitions of these topics; all if `topics` is empty."""
        if not topics:
            return self
        chosen = {each: found for each, found in self.partitions.items() if each.topic in topics}
        return Layout(brokers=self.brokers, partitions=chosen)


class BrokerLoad(NamedTuple):
    """`leaders` counts preferred leaders. `size` is the sum of the sizes of all replicas, in bytes."""

    leaders: int
    replicas: int
    size: int


def broker_loads(
    layout: Layout, assignment: Assignment, brokers: Iterable[int]
) -> dict[int, BrokerLoad]:
    """Return the load of these brokers under an assignment of the partitions in the layout."""
    leaders = dict.fromkeys(brokers, 0)
    replicas = dict(leaders)
    sizes = dict(leaders)
    for partition, assigned in assignment.items():
        if assigned and assigned[0] in leaders:
            leaders[assigned[0]] += 1
        for broker in assigned:
            if broker in replicas:
                replicas[broker] += 1
                sizes[broker] += layout.partitions[partition].size
    return {each: BrokerLoad(leaders[each], replicas[each], sizes[each]) for each in leaders}
