"""The lines of `kafka-topics --describe`, and which of them are shown. Pure.

Topic: orders\tTopicId: v7CDn_RiRbmrvGPXyO6kdQ\tPartitionCount: 1\tReplicationFactor: 2\tConfigs: retention.ms=1000
\tTopic: orders\tPartition: 0\tLeader: 3\tReplicas: 3,1\tIsr: 3,1\tElr: N/A\tLastKnownElr: N/A
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from barnabas.cli.kafka.options import ParsedOptions
from barnabas.cli.kafka.topic_options import REPORTS
from barnabas.metadata.znodes import encode_uuid
from barnabas.model import ZERO_ID
from barnabas.printable import printable

SEPARATOR = "\t"
"""Of the columns, in which names are escaped."""
WITHOUT_ELR = "\tElr: N/A\tLastKnownElr: N/A"
"""Eligible leaders are of clusters without ZooKeeper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A reassignment in progress. `replicas` are all brokers that hold the partition meanwhile."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    topic: str
    partition: int
    leader: int | None
    replicas: Sequence[int]
    isr: Sequence[int]
    move: Move | None = None
    marked_for_deletion: bool = False

    @property
    def replication_factor(self) -> int:
        """Number of replicas, without those that are being added."""
        move = self.move
        if move is not None and {*move.adding, *move.removing} & set(self.replicas):
            return len(move.replicas) - len(move.adding)
        return len(self.replicas)

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < self.replication_factor


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    name: str
    id: UUID | None
    partitions: Sequence[PartitionDescription]
    configs: Iterable[tuple[str, str | None]]
    marked_for_deletion: bool = False


def topic_line(topic: TopicDescription) -> str:
    factor = topic.partitions[0].replication_factor if topic.partitions else 0
    return "\t".join(
        [
            f"Topic: {printable(topic.name)}",
            *([f"TopicId: {encode_uuid(topic.id)}"] if topic.id not in (None, ZERO_ID) else []),
            f"PartitionCount: {len(topic.partitions)}",
            f"ReplicationFactor: {factor}",
            "Configs: "
            + ",".join(printable(f"{name}={java(value)}") for name, value in topic.configs),
            *(["MarkedForDeletion: true"] if topic.marked_for_deletion else []),
        ]
    )


def partition_line(shown: PartitionDescription, *, elr: str = WITHOUT_ELR) -> str:
    line = (
        f"\tTopic: {printable(shown.topic)}\tPartition: {shown.partition}"
        f"\tLeader: {'none' if shown.leader is None else shown.leader}"
        f"\tReplicas: {numbers(shown.replicas)}\tIsr: {numbers(shown.isr)}"
    )
    if shown.move is not None:
        line += f"\tAdding Replicas: {numbers(shown.move.adding)}"
        line += f"\tRemoving Replicas: {numbers(shown.move.removing)}"
    return line + elr + ("\tMarkedForDeletion: true" if shown.marked_for_deletion else "")


def numbers(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def java(value: str | None) -> str:
    return "null" if value is None else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Filter of partitions and topics. `asked` are options of REPORTS; without any, all are shown."""

    asked: frozenset[str]
    only_overrides: bool
    alive: Collection[int]

    def lines(
        self, topic: TopicDescription, *, min_isr: int | None = None, elr: str = WITHOUT_ELR
    ) -> list[str]:
        """Return the lines of a topic. `min_isr` is None if it is not known."""
        lines = []
        if not self.asked and (not self.only_overrides or list(topic.configs)):
            lines.append(topic_line(topic))
        if not self.only_overrides:
            lines += [
                partition_line(each, elr=elr)
                for each in topic.partitions
                if not self.asked or self.shows(each, min_isr)
            ]
        return lines

    def shows(self, shown: PartitionDescription, min_isr: int | None) -> bool:
        in_sync = len(shown.isr)
        holds = {
            "under-replicated-partitions": shown.is_under_replicated,
            "unavailable-partitions": shown.leader is None or shown.leader not in self.alive,
            "under-min-isr-partitions": shown.leader is None
            or (min_isr is not None and in_sync < min_isr),
            "at-min-isr-partitions": in_sync == min_isr,
        }
        return any(holds[name] for name in self.asked)


def report_of(given: ParsedOptions, alive: Collection[int]) -> Report:
    return Report(
        asked=frozenset(name for name in REPORTS if given.has(name)),
        only_overrides=given.has("topics-with-overrides"),
        alive=alive,
    )
