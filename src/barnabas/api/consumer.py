"""Consumer of assigned partitions, without a group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypedDict

from barnabas.api.connection import Connection
from barnabas.api.partition_reader import PartitionReader, topic_partitions
from barnabas.api.settings import parse_auto_offset_reset, require_positive
from barnabas.client import consumer as client_consumer
from barnabas.client.consumer import (
    FETCH_WAIT_MS,
    PARTITION_BYTES,
    ConsumedRecord,
    resolve_starts,
)
from barnabas.model import TopicPartition
from barnabas.security.client_sources import SecuritySource


class ConsumerSettings(TypedDict, total=False):
    """Settings of a Consumer, for `Client.consumer`."""

    auto_offset_reset: Literal["earliest", "latest"]
    consumer_timeout_ms: float | None
    fetch_max_wait_ms: int
    isolation_level: Literal["read_uncommitted", "read_committed"]
    max_partition_fetch_bytes: int


class Consumer(PartitionReader):
    """Reads all partitions of its topics, or those passed to `assign`. It commits nothing.

    `auto_offset_reset` is the start position: "latest" or "earliest". It also applies if records at the position were
    deleted. New partitions of the topics are read from their beginning. Iteration ends if no record arrives for
    `consumer_timeout_ms`; with None it never ends.

    With `isolation_level="read_committed"`, the consumer skips records of aborted transactions, and stops before the
    first open transaction. The end of a partition is then that place.
    """

    def __init__(
        self,
        bootstrap_servers: Connection | str | Sequence[str],
        *topics: str,
        auto_offset_reset: Literal["earliest", "latest"] = "latest",
        consumer_timeout_ms: float | None = None,
        fetch_max_wait_ms: int = FETCH_WAIT_MS,
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        max_partition_fetch_bytes: int = PARTITION_BYTES,
        security: SecuritySource = None,
    ) -> None:
        self._start = parse_auto_offset_reset(auto_offset_reset)
        require_positive("fetch_max_wait_ms", fetch_max_wait_ms)
        require_positive("max_partition_fetch_bytes", max_partition_fetch_bytes)
        super().__init__(
            bootstrap_servers,
            consumer_timeout_ms=consumer_timeout_ms,
            isolation_level=isolation_level,
            security=security,
        )
        # Fetches use separate connections: a fetch that waits for records would delay the requests after it.
        cluster = self._connection._cluster
        self._fetches = cluster.with_new_connections(timeout_s=cluster.timeout_s)
        try:
            partitions = [each for topic in topics for each in topic_partitions(cluster, topic)]
            self._consumer = client_consumer.Consumer(
                self._fetches,
                dict.fromkeys(partitions, self._start),
                reset=self._start,
                watched_topics=topics,
                fetch_wait_ms=fetch_max_wait_ms,
                partition_bytes=max_partition_fetch_bytes,
                is_committed_only=self._is_committed_only,
            )
        except BaseException:
            self._close(is_failed=True)
            raise

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int]) -> None:
        """Read these partitions instead of the current ones.

        A mapping has the start offset of each partition. Otherwise the start position is `auto_offset_reset`.
        """
        cluster = self._open_cluster()
        if isinstance(partitions, Mapping):
            starts = dict(partitions)
        else:
            starts = resolve_starts(
                cluster,
                dict.fromkeys(partitions, self._start),
                committed=self._is_committed_only,
            )
        self._fetched.clear()
        self._consumer.watched_topics = ()
        self._consumer.assign(starts)

    def read_to_end(self) -> Iterator[ConsumedRecord]:
        """Yield the records up to the present end of all partitions, and perhaps a few newer ones."""
        ends = self.end_offsets(self._positions())
        while any(self.position(each) < end for each, end in ends.items()):
            yield from self.poll(1.0)

    def _poll_cluster(self, timeout_s: float) -> list[ConsumedRecord]:
        return self._consumer.poll(timeout_s)

    def _positions(self) -> dict[TopicPartition, int]:
        return self._consumer.positions

    def _finish_work(self, *, is_failed: bool) -> None:
        self._fetches.close()
