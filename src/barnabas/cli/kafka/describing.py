"""Lines of `kafka-topics --describe`, and the filters that select them. Without I/O.

Topic: orders\tTopicId: v7CDn_RiRbmrvGPXyO6kdQ\tPartitionCount: 1\tReplicationFactor: 2\tConfigs: retention.ms=1000
\tTopic: orders\tPartition: 0\tLeader: 3\tReplicas: 3,1\tIsr: 3,1\tElr: \tLastKnownElr:
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from barnabas.cli.kafka.options import ParsedOptions
from barnabas.cli.kafka.topic_options import REPORTS
from barnabas.cli.terminal.output import join_numbers
from barnabas.metadata.znodes import encode_uuid
from barnabas.model import ZERO_ID
from barnabas.printable import printable
from barnabas.wire.messages.list_partition_reassignments import OngoingPartitionReassignment

SEPARATOR = "\t"
"""Separates the columns. It is the only control character that is printed unescaped."""
EMPTY_ELR = "\tElr: \tLastKnownElr: "
"""Columns of a partition without eligible leader replicas. Brokers report them with DescribeTopicPartitions."""
UNKNOWN_ELR = "\tElr: N/A\tLastKnownElr: N/A"
"""Columns if the broker does not serve DescribeTopicPartitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    partition: int
    leader: int | None
    replicas: Sequence[int]
    isr: Sequence[int]
    reassignment: OngoingPartitionReassignment | None = None

    @property
    def replication_factor(self) -> int:
        """Number of replicas, without those that are being added."""
        ongoing = self.reassignment
        if ongoing and {*ongoing.adding_replicas, *ongoing.removing_replicas} & {*self.replicas}:
            return len(ongoing.replicas) - len(ongoing.adding_replicas)
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
            + ",".join(printable(f"{name}={java_text(value)}") for name, value in topic.configs),
            *(["MarkedForDeletion: true"] if topic.marked_for_deletion else []),
        ]
    )


def partition_line(topic: TopicDescription, shown: PartitionDescription, *, elr: str) -> str:
    line = (
        f"\tTopic: {printable(topic.name)}\tPartition: {shown.partition}"
        f"\tLeader: {'none' if shown.leader is None else shown.leader}"
        f"\tReplicas: {join_numbers(shown.replicas)}\tIsr: {join_numbers(shown.isr)}"
    )
    if shown.reassignment is not None:
        line += f"\tAdding Replicas: {join_numbers(shown.reassignment.adding_replicas)}"
        line += f"\tRemoving Replicas: {join_numbers(shown.reassignment.removing_replicas)}"
    return line + elr + ("\tMarkedForDeletion: true" if topic.marked_for_deletion else "")


def java_text(value: str | None) -> str:
    return "null" if value is None else value


class DescribeReport:
    """Selects the lines of --describe that the options request. `alive` are the ids of the live brokers."""

    def __init__(self, options: ParsedOptions, alive: Collection[int]) -> None:
        self.filters = [name for name in REPORTS if options.has(name)]
        self.only_overrides = options.has("topics-with-overrides")
        self.alive = alive

    def lines(self, topic: TopicDescription, *, elr: str, min_isr: int | None = None) -> list[str]:
        """Return the lines of a topic. `min_isr` is None if it is not known."""
        lines = []
        if not self.filters and (not self.only_overrides or list(topic.configs)):
            lines.append(topic_line(topic))
        if not self.only_overrides:
            lines += [
                partition_line(topic, each, elr=elr)
                for each in topic.partitions
                if not self.filters or self.matches(each, min_isr)
            ]
        return lines

    def matches(self, shown: PartitionDescription, min_isr: int | None) -> bool:
        in_sync = len(shown.isr)
        conditions = {
            "under-replicated-partitions": shown.is_under_replicated,
            "unavailable-partitions": shown.leader is None or shown.leader not in self.alive,
            "under-min-isr-partitions": shown.leader is None
            or (min_isr is not None and in_sync < min_isr),
            "at-min-isr-partitions": in_sync == min_isr,
        }
        return any(conditions[name] for name in self.filters)
