"""A consumer of assigned partitions, without a group. It tracks positions and follows leader changes.

    consumer = Consumer(cluster, {TopicPartition("orders", 0): Beginning()})
    for record in consumer.records(): ...

Each leader gets one Fetch for all its partitions that have no Fetch in flight. Responses are handled in order of
arrival. A slow leader, or a partition without a leader, does not delay the others. There are no fetch sessions.

With `is_committed_only`, the isolation level is read_committed: the consumer skips records of aborted transactions, and
stops before the first open transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from barnabas.batch.header import batch_headers, crc_is_valid
from barnabas.batch.records import records
from barnabas.client.aborted_filter import AbortedFilter
from barnabas.client.blocking import BlockingConnection, Deadline, pause, wait_readable
from barnabas.client.cluster import BACKOFF_S_MAX, Cluster
from barnabas.client.core import build_topics, raise_if
from barnabas.client.offsets import earliest_offsets, latest_offsets, list_offsets
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import ZERO_ID, BrokerId, TopicPartition
from barnabas.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

FETCH_BY_NAME_VERSION = 12
"""The last version of Fetch that identifies topics by name, for brokers without topic ids."""
FETCH_BYTES = 50 << 20
PARTITION_BYTES = 1 << 20
FETCH_WAIT_MS = 500
PARTITION_CHECK_S = 5.0
"""Interval between checks for new partitions."""


class ConsumedRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


# ---- start positions ------------------------------------------------------------------------------------------


class Beginning(Struct, frozen=True):
    pass


class End(Struct, frozen=True):
    pass


class FromOffset(Struct, frozen=True):
    offset: int


class FromEnd(Struct, frozen=True):
    """The last `count` offsets, or all records if there are fewer."""

    count: int


class FromTime(Struct, frozen=True):
    """The first record at or after this time, or the end if there is none."""

    timestamp_ms: int


Start = Beginning | End | FromOffset | FromEnd | FromTime


def resolve_starts(
    cluster: Cluster, starts: Mapping[TopicPartition, Start], *, committed: bool = False
) -> dict[TopicPartition, int]:
    """Return the start offset of each partition. Makes at most three lookups: latest, by time and earliest.

    With `committed`, the end of a partition is its last stable offset.
    """

    def partitions_with(*kinds: type[Start]) -> list[TopicPartition]:
        return [partition for partition, start in starts.items() if isinstance(start, kinds)]

    times = {
        partition: start.timestamp_ms
        for partition, start in starts.items()
        if isinstance(start, FromTime)
    }
    # The ends are read first: a record that is written between the two lookups comes after the end.
    ends = latest_offsets(cluster, partitions_with(End, FromEnd, FromTime), committed=committed)
    by_time = list_offsets(cluster, times, committed=committed) if times else {}
    beginnings = earliest_offsets(cluster, partitions_with(Beginning, FromEnd))

    def offset(partition: TopicPartition, start: Start) -> int:
        match start:
            case Beginning():
                return beginnings[partition]
            case End():
                return ends[partition]
            case FromOffset(wanted):
                return wanted
            case FromEnd(count):
                return max(beginnings[partition], ends[partition] - count)
            case FromTime():
                found = by_time[partition].offset
                return found if found >= 0 else ends[partition]

    return {partition: offset(partition, start) for partition, start in starts.items()}


# ---- consumer -------------------------------------------------------------------------------------------------


class PendingFetch(Struct, frozen=True):
    """A Fetch in flight, with the positions it was sent for."""

    connection: BlockingConnection
    correlation_id: int
    positions: dict[TopicPartition, int]


class Consumer:
    """Consumer of the partitions in `starts`. Partitions added later to `watched_topics` are read from their beginning.

    `reset` is the start position after OFFSET_OUT_OF_RANGE; with None, that error is raised.
    """

    def __init__(
        self,
        cluster: Cluster,
        starts: Mapping[TopicPartition, Start],
        *,
        reset: Start | None = None,
        watched_topics: Collection[str] = (),
        fetch_wait_ms: int = FETCH_WAIT_MS,
        partition_bytes: int = PARTITION_BYTES,
        is_committed_only: bool = False,
    ) -> None:
        self.cluster = cluster
        self.reset = reset
        self.is_committed_only = is_committed_only
        self.watched_topics = watched_topics
        self.next_partition_check = Deadline(PARTITION_CHECK_S)
        self.fetch_wait_ms = fetch_wait_ms
        self.partition_bytes = partition_bytes
        for topic in {partition.topic for partition in starts}:
            cluster.topic(topic)
        self.positions = resolve_starts(cluster, starts, committed=is_committed_only)
        self.ends: dict[TopicPartition, int] = {}
        """High watermark of the last response, or the last stable offset if `is_committed_only`."""
        self.in_flight: list[PendingFetch] = []
        self.retry_deadline: Deadline | None = None
        self.next_refresh = Deadline(0)
        self.backoff = cluster.new_backoff()

    @property
    def at_end(self) -> bool:
        """Whether every position has reached the end in the last response."""
        return all(
            position >= self.ends.get(partition, position + 1)
            for partition, position in self.positions.items()
        )

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Replace the assigned partitions and their positions."""
        for topic in {partition.topic for partition in positions}:
            self.cluster.topic(topic)
        self.positions = dict(positions)
        self.retry_deadline = None
        for partition in [each for each in self.ends if each not in positions]:
            del self.ends[partition]

    def records(self, *, stop_at_end: bool = False) -> Iterator[ConsumedRecord]:
        """Yield records forever; with `stop_at_end`, until every partition is read to its end."""
        while not (stop_at_end and self.at_end):
            yield from self.poll(1.0)

    def poll(self, timeout_s: float) -> list[ConsumedRecord]:
        """Return new records, in order per partition, and advance the positions.

        Returns an empty list after the timeout or a retriable error.
        Raises ApiError if the error is not retriable, or if retries fail for the cluster's timeout.
        """
        if self.watched_topics and self.next_partition_check.passed:
            self.add_new_partitions()
        try:
            found = self.fetch(Deadline(timeout_s))
        except ApiError as error:
            self.retry_deadline = self.retry_deadline or Deadline(self.cluster.timeout_s)
            if not error.code.retriable or self.retry_deadline.passed:
                raise
            pause(min(self.backoff.next_s(), timeout_s))
            self.refresh_metadata()
            return []
        self.retry_deadline = None
        self.backoff.reset()
        return found

    def refresh_metadata(self) -> None:
        """Refresh the metadata of the assigned topics. Retriable errors are ignored: a later poll refreshes again."""
        self.next_refresh = Deadline(BACKOFF_S_MAX)
        try:
            self.cluster.refresh(sorted({partition.topic for partition in self.positions}))
        except ApiError as error:
            if not error.code.retriable:
                raise

    def add_new_partitions(self) -> None:
        self.next_partition_check = Deadline(PARTITION_CHECK_S)
        self.refresh_metadata()
        known = self.cluster.view.topics
        for topic in self.watched_topics:
            for found in known[topic].partitions if topic in known else ():
                self.positions.setdefault(TopicPartition(topic, found.partition), 0)

    def fetch(self, deadline: Deadline) -> list[ConsumedRecord]:
        """Send the Fetch requests that are due, and return the records of the responses that arrive first."""
        failure = self.send_fetches()
        if failure is not None and not self.in_flight:
            raise failure
        consumed: list[ConsumedRecord] = []
        for fetch in self.ready_fetches(deadline):
            self.in_flight.remove(fetch)
            try:
                response = fetch.connection.receive(
                    fetch.correlation_id, FetchResponse, timeout_s=self.cluster.timeout_s
                )
                raise_if(response.error_code, "Fetch")
            except ApiError as error:
                failure = error
                continue
            for partition, data in self.requested_data(response, fetch):
                try:
                    consumed += self.handle_partition(partition, data)
                except ApiError as error:
                    failure = error
        # Records are returned before an error is raised: their positions have advanced already.
        if failure is not None and not consumed:
            raise failure
        if failure is not None and self.next_refresh.passed:
            self.refresh_metadata()
        return consumed

    def ready_fetches(self, deadline: Deadline) -> list[PendingFetch]:
        """Return the fetches whose response has arrived or is arriving. Waits for one until the deadline."""
        unclaimed = [
            fetch for fetch in self.in_flight if fetch.correlation_id in fetch.connection.unclaimed
        ]
        if unclaimed:
            # These responses were read while waiting for another one. The socket may have no more data.
            return unclaimed
        ready = wait_readable([fetch.connection for fetch in self.in_flight], deadline.left_s())
        # A broker responds in request order, so the response belongs to the oldest fetch of the connection.
        return [next(f for f in self.in_flight if f.connection is found) for found in ready]

    def send_fetches(self) -> ApiError | None:
        """Send a Fetch for every partition without one in flight. Returns the last error, if any."""
        self.in_flight = [fetch for fetch in self.in_flight if fetch.connection.is_open]
        busy = {partition for fetch in self.in_flight for partition in fetch.positions}
        failure: ApiError | None = None
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        for partition in self.positions:
            if partition not in busy:
                try:
                    by_leader.setdefault(self.cluster.view.leader(partition), []).append(partition)
                except ApiError as error:
                    failure = error
        for leader, led in by_leader.items():
            try:
                self.send_fetch(self.cluster.connection(leader), led)
            except ApiError as error:
                failure = error
        return failure

    def send_fetch(self, connection: BlockingConnection, led: list[TopicPartition]) -> None:
        request = self.build_request(led)
        has_ids = all(topic.topic_id != ZERO_ID for topic in request.topics)
        correlation_id = connection.send(
            request,
            FetchResponse,
            max_version=None if has_ids else FETCH_BY_NAME_VERSION,
            timeout_s=self.cluster.timeout_s,
        )
        positions = {partition: self.positions[partition] for partition in led}
        self.in_flight.append(PendingFetch(connection, correlation_id, positions))

    def build_request(self, partitions: list[TopicPartition]) -> FetchRequest:
        view = self.cluster.view
        fetches = {
            each: FetchPartition(
                partition=each.partition,
                current_leader_epoch=view.partition(each).leader_epoch,
                fetch_offset=self.positions[each],
                partition_max_bytes=self.partition_bytes,
            )
            for each in partitions
        }
        return FetchRequest(
            max_wait_ms=self.fetch_wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=int(self.is_committed_only),
            topics=build_topics(
                lambda name, found: FetchTopic(name, view.topic(name).id, found), fetches
            ),
        )

    def requested_data(
        self, response: FetchResponse, fetch: PendingFetch
    ) -> Iterator[tuple[TopicPartition, PartitionData]]:
        """Yield the partitions of a response that were requested, and not unassigned or repositioned since."""
        names = {topic.id: name for name, topic in self.cluster.view.topics.items()}
        for topic in response.responses:
            for data in topic.partitions:
                name = topic.topic or names.get(topic.topic_id, "")
                partition = TopicPartition(name, data.partition_index)
                requested = fetch.positions.get(partition)
                if requested is not None and self.positions.get(partition) == requested:
                    yield partition, data

    def handle_partition(
        self, partition: TopicPartition, data: PartitionData
    ) -> list[ConsumedRecord]:
        """Return the records of a partition and advance its position. Raises ApiError."""
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self.reset is not None:
            self.positions |= resolve_starts(
                self.cluster, {partition: self.reset}, committed=self.is_committed_only
            )
            return []
        raise_if(data.error_code, f"{partition} at offset {self.positions[partition]}")
        self.ends[partition] = (
            data.last_stable_offset if self.is_committed_only else data.high_watermark
        )
        try:
            found, position = decode_consumed_records(
                partition,
                self.positions[partition],
                memoryview(data.records or b""),
                data.aborted_transactions or (),
            )
        except RemoteWireError as corrupt:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{partition}: {corrupt}") from None
        self.positions[partition] = position
        return found


def decode_consumed_records(
    partition: TopicPartition,
    position: int,
    data: memoryview,
    aborted: Sequence[AbortedTransaction] = (),
) -> tuple[list[ConsumedRecord], int]:
    """Decode the records from `position` on, without those of aborted transactions.

    Returns them and the next position, which also skips control batches and aborted records.
    """
    found: list[ConsumedRecord] = []
    topic, number = partition.topic, partition.partition
    aborted_filter = AbortedFilter(aborted)
    for at, header in batch_headers(data):
        if not crc_is_valid(data, at, header):
            raise RemoteWireError(f"the batch at offset {header.base_offset} is corrupt")
        if not aborted_filter.hides(header, data, at):
            found += [
                ConsumedRecord(topic, number, *record)
                for record in records(data[at : at + header.size])
                if record.offset >= position
            ]
        position = max(position, header.next_offset)
    return found, position
