"""The input of a read task: an offset range and the fetch settings. Immutable and picklable; imports no Spark or Arrow.

Data loss means that the cluster no longer has offsets that a batch should read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from barnabas.errors import BarnabasError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.spark.client_settings import integer_setting, reads_committed

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""The columns of Spark's Kafka source, in the same order."""
DELETED_TOPIC = f"the topic was deleted ({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name})"
"""Reason of a data loss."""
DEFAULT_FETCH_BYTES = 4 << 20
"""Larger than Kafka's default of 1 MiB, which makes bulk reads slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets from `start` up to, not including, `end`. Compaction and transactions leave gaps in them."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: UUID | None = None
    """The id of the topic at planning time. None if the broker does not report ids."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic_partition} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """Client settings of a read task, and the columns to build."""

    client: Mapping[str, str] = field(repr=False)
    """Kafka consumer settings, without the prefix `kafka.`."""
    columns: tuple[str, ...]
    fail_on_data_loss: bool
    reads_committed: bool
    checks_crcs: bool
    deadline_ms: int
    """How long a task retries without progress before it fails."""
    retry_backoff_ms: int
    retry_backoff_ms_max: int
    fetch_wait_ms: int
    fetch_bytes: int


def parse_fetch_settings(
    client: Mapping[str, str], columns: tuple[str, ...], *, fail_on_data_loss: bool = True
) -> FetchSettings:
    """Parse Kafka consumer settings, given without the prefix `kafka.`. Raises ConfigError for an invalid one."""

    def number(name: str, default: int, *, least: int = 1) -> int:
        return integer_setting(client, name, default, least=least)

    return FetchSettings(
        client=client,
        columns=columns,
        fail_on_data_loss=fail_on_data_loss,
        reads_committed=reads_committed(client),
        checks_crcs=client.get("check.crcs", "true").lower() != "false",
        deadline_ms=number("default.api.timeout.ms", 60_000),
        retry_backoff_ms=number("retry.backoff.ms", 100, least=0),
        retry_backoff_ms_max=number("retry.backoff.max.ms", 1_000, least=0),
        fetch_wait_ms=number("fetch.max.wait.ms", 500, least=0),
        # A Fetch request names one partition, so the smaller of the two limits applies.
        fetch_bytes=min(
            number("fetch.max.bytes", 52_428_800),
            number("max.partition.fetch.bytes", DEFAULT_FETCH_BYTES),
        ),
    )


class DataLoss(BarnabasError):
    """The offsets `start` to `end` - 1 should be read, but no longer exist."""

    def __init__(self, topic: str, partition: int, start: int, end: int, why: str) -> None:
        super().__init__(topic, partition, start, end, why)
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end
        self.why = why

    def __str__(self) -> str:
        what = f"offsets {self.start} to {self.end - 1}" if self.end > self.start else "offsets"
        return f"{what} of {self.topic}-{self.partition} are gone: {self.why}"
