"""What the driver hands to a task: one range of offsets, and how to read it. Frozen and picklable; nothing here imports
Spark or Arrow.

Data loss has one meaning everywhere: offsets that a plan says are to be read, and that the cluster no longer has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from barnabas.errors import BarnabasError, ConfigError
from barnabas.model import TopicPartition

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
"""Those of Spark's own Kafka source, in its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets from `start` up to, not including, `end`. Not every one of them must hold a record: compaction and
    transactions leave gaps."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: UUID | None = None
    """The topic the plan was made for; None where the broker does not tell."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic_partition} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How a task reaches the cluster and what it builds from the bytes."""

    bootstrap_servers: str
    client: Mapping[str, str] = field(default_factory=dict)
    """Kafka's consumer settings by their own names, without Spark's `kafka.` before them."""
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
        """How long a task goes on without hearing anything new before it gives up."""
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
        """A request asks for one partition, so the smaller of Kafka's two limits is the one that counts."""
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
        text = self.client.get(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise ConfigError(f"kafka.{name}", f"must be a whole number, not {text!r}") from None
        if not least <= value <= 0x7FFF_FFFF:
            raise ConfigError(f"kafka.{name}", f"must be at least {least}, it is {text}")
        return value

    def check(self) -> None:
        """ConfigError for a setting a task would stumble over; for the driver, before the job starts."""
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
"""Kafka's own default of 1 MiB would spend much of a bulk read on requests."""


class DataLoss(BarnabasError):
    """Offsets that should be read are gone."""

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
