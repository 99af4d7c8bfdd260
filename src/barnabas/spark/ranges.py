"""The input of a read task: an offset range and the fetch settings. Immutable and picklable; imports no Spark or Arrow.

Data loss means: offsets that a batch should read, and that the cluster no longer has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from barnabas.errors import BarnabasError
from barnabas.model import TopicPartition
from barnabas.spark.client_settings import integer_setting

COLUMNS = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
"""The columns of Spark's Kafka source, in the same order."""


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

    def __str__(self) -> str:
        return f"{self.topic_partition} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """Client settings of a read task, and the columns to build."""

    bootstrap_servers: str
    client: Mapping[str, str] = field(default_factory=dict)
    """Kafka consumer settings, without the prefix `kafka.`."""
    columns: tuple[str, ...] = COLUMNS[:-1]
    fail_on_data_loss: bool = True

    @property
    def client_id(self) -> str:
        return self.client.get("client.id", "barnabas-spark")

    @property
    def request_timeout_ms(self) -> int:
        return self.number("request.timeout.ms", 30_000)

    @property
    def deadline_ms(self) -> int:
        """How long a task retries without progress before it fails."""
        return self.number("default.api.timeout.ms", 60_000)

    @property
    def retry_backoff_ms(self) -> int:
        return self.number("retry.backoff.ms", 100, least=0)

    @property
    def retry_backoff_ms_max(self) -> int:
        return self.number("retry.backoff.max.ms", 1_000, least=0)

    @property
    def fetch_wait_ms(self) -> int:
        return self.number("fetch.max.wait.ms", 500, least=0)

    @property
    def fetch_bytes(self) -> int:
        """Maximum size of a Fetch. Each Fetch has one partition, so the smaller of the two limits applies."""
        return min(
            self.number("fetch.max.bytes", 52_428_800),
            self.number("max.partition.fetch.bytes", DEFAULT_FETCH_BYTES),
        )

    @property
    def connect_timeout_ms(self) -> int:
        return self.number("socket.connection.setup.timeout.ms", 10_000)

    @property
    def reads_committed(self) -> bool:
        return self.client.get("isolation.level", "").strip().lower() == "read_committed"

    @property
    def checks_crcs(self) -> bool:
        return self.client.get("check.crcs", "true").strip().lower() != "false"

    def number(self, name: str, default: int, *, least: int = 1) -> int:
        return integer_setting(self.client, name, default, least=least)

    def check(self) -> None:
        """Raise ConfigError for an invalid setting. The driver calls this before the job starts."""
        for setting in (
            self.request_timeout_ms,
            self.deadline_ms,
            self.retry_backoff_ms,
            self.retry_backoff_ms_max,
            self.fetch_wait_ms,
            self.fetch_bytes,
            self.connect_timeout_ms,
        ):
            assert setting >= 0


DEFAULT_FETCH_BYTES = 4 << 20
"""Larger than Kafka's default of 1 MiB, which makes bulk reads slow."""


class DataLoss(BarnabasError):
    """Offsets that should be read do not exist any more."""

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
