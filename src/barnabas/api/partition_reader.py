"""Reading of partitions, for both consumers: poll, iteration, positions and seek."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from barnabas.api.connection import Connection, ConnectionUser, existing_topic
from barnabas.api.settings import parse_isolation_level, require_positive
from barnabas.client.blocking import Deadline
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import ConsumedRecord
from barnabas.client.offsets import earliest_offsets, latest_offsets, list_offsets
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.security.client_sources import SecuritySource

ITERATION_WAIT_S = 1.0


class PartitionReader(ConnectionUser):
    """Base of both consumers. `_fetched` are the records that were fetched, but not returned yet."""

    def __init__(
        self,
        bootstrap_servers: Connection | str | Sequence[str],
        *,
        consumer_timeout_ms: float | None,
        isolation_level: str,
        security: SecuritySource,
    ) -> None:
        self._is_committed_only = parse_isolation_level(isolation_level)
        if consumer_timeout_ms is not None:
            require_positive("consumer_timeout_ms", consumer_timeout_ms)
        self._iteration_timeout_ms = consumer_timeout_ms
        self._fetched: deque[ConsumedRecord] = deque()
        super().__init__(bootstrap_servers, security=security)

    # ---- records --------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[ConsumedRecord]:
        """Return new records, at most `max_records`. Waits up to `timeout` seconds for the first one.

        Records of one partition are in order. Raises ApiError if an error persists for the client's request_timeout_ms.
        """
        if max_records is not None:
            require_positive("max_records", max_records)
        self._prepare()
        if not self._fetched:
            self._fetch(timeout)
        if max_records is None:
            max_records = len(self._fetched)
        found = [self._fetched.popleft() for _ in range(min(max_records, len(self._fetched)))]
        self._hand_out(found)
        return found

    def __iter__(self) -> Iterator[ConsumedRecord]:
        """Yield records forever, or until none arrives for `consumer_timeout_ms`."""
        while True:
            self._prepare()
            if not self._fetched and not self._wait():
                return
            record = self._fetched.popleft()
            self._hand_out([record])
            yield record

    def _wait(self) -> bool:
        """Fetch records. Returns false if none arrived within `consumer_timeout_ms`."""
        limit_ms = self._iteration_timeout_ms
        while True:
            was_settled = self._is_settled()
            self._fetch(ITERATION_WAIT_S if limit_ms is None else limit_ms / 1000)
            if self._fetched:
                return True
            if limit_ms is not None and was_settled:
                return False

    def _is_settled(self) -> bool:
        """Whether the partitions are assigned. Before that, `consumer_timeout_ms` does not end an iteration."""
        return True

    def _fetch(self, timeout_s: float) -> None:
        """Fetch records until there are some, or the time is over."""
        deadline = Deadline(timeout_s)
        while True:
            found = self._poll_cluster(deadline.left_s())  # may replace `_fetched`, in a callback
            self._fetched.extend(found)
            if self._fetched or deadline.passed:
                return

    def _prepare(self) -> None:
        """Do what is due before records are returned. Raises ClientClosed after `close`."""
        self._open_cluster()

    @abstractmethod
    def _poll_cluster(self, timeout_s: float) -> list[ConsumedRecord]:
        """Fetch records once."""

    @abstractmethod
    def _positions(self) -> dict[TopicPartition, int]:
        """The assigned partitions, with the offsets after the fetched records. Not a copy."""

    def _hand_out(self, records: list[ConsumedRecord]) -> None:
        """Called with the records that the caller gets."""

    # ---- positions ------------------------------------------------------------------------------------------------

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that this consumer reads, sorted."""
        self._open_cluster()
        return sorted(self._positions())

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record that the consumer returns from this partition."""
        self._open_cluster()
        for record in self._fetched:
            if record[:2] == partition:
                return record.offset
        return self._positions()[self._assigned(partition)]

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue to read a partition at this offset."""
        self._open_cluster()
        if offset < 0:
            raise ConfigError("offset", f"{offset} is less than 0")
        self._move({self._assigned(partition): offset})

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue to read these partitions, or all assigned ones, at their first record."""
        cluster = self._open_cluster()
        self._move(earliest_offsets(cluster, self._all_assigned(partitions)))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue to read these partitions, or all assigned ones, at their end."""
        self._open_cluster()
        self._move(self.end_offsets(self._all_assigned(partitions)))

    def _move(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._drop_fetched(offsets)
        self._positions().update(offsets)

    def _drop_fetched(self, partitions: Iterable[TopicPartition]) -> None:
        dropped = frozenset(partitions)
        self._fetched = deque(each for each in self._fetched if each[:2] not in dropped)

    def _all_assigned(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [self._assigned(each) for each in partitions or self._positions()]

    def _assigned(self, partition: TopicPartition) -> TopicPartition:
        if partition not in self._positions():
            why = f"{TopicPartition(*partition)} is not assigned to this consumer"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
        return TopicPartition(*partition)

    # ---- offsets of the cluster -------------------------------------------------------------------------------------

    def partitions_for_topic(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic."""
        return topic_partitions(self._open_cluster(), topic)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition."""
        return earliest_offsets(self._open_cluster(), partitions)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each partition: its high watermark, or with read_committed its last stable offset."""
        return latest_offsets(self._open_cluster(), partitions, committed=self._is_committed_only)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """Return the offset of the first record at or after each time, in milliseconds; None if there is none."""
        cluster = self._open_cluster()
        found = list_offsets(cluster, timestamps, committed=self._is_committed_only)
        return {each: at.offset if at.offset >= 0 else None for each, at in found.items()}


def topic_partitions(cluster: Cluster, topic: str) -> list[TopicPartition]:
    """Return the partitions of a topic. Raises ApiError if it does not exist."""
    view = existing_topic(cluster, topic)
    return [TopicPartition(topic, found.partition) for found in view.partitions]
