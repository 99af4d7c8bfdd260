"""A consumer of assigned partitions: it knows where it stands in each, asks their leaders, and follows new leaders.

    consumer = Consumer(cluster, {TopicPartition("orders", 0): Beginning()})
    for record in consumer.records(): ...

Of topics that are to be read as a whole, partitions that are added later are taken up too, from their beginning.

One Fetch per leader is under way; whichever answers first is read first, so a quiet leader holds nobody up. A partition
without a leader does not stop the others. There are no fetch sessions and no groups here, and records of aborted
transactions are not told apart from others (read_uncommitted).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

from barnabas.client.blocking import BlockingConnection, Deadline, pause, wait_any
from barnabas.client.cluster import PAUSE_S_MAX, Cluster
from barnabas.client.core import error_of, raise_if
from barnabas.client.offsets import earliest_offsets, latest_offsets, list_offsets
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import ZERO_ID, BrokerId, TopicPartition
from barnabas.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.wire.records import batch_headers, crc_is_valid, records

FETCH_BY_NAME = 12
"""The last version of Fetch that names its topics; for brokers that gave us no topic id."""
FETCH_BYTES = 50 << 20
PARTITION_BYTES = 1 << 20
FETCH_WAIT_MS = 500
NEW_PARTITIONS_S = 5.0
"""How often topics that are read as a whole are asked whether they have grown."""


class ConsumedRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


# ---- where to start -------------------------------------------------------------------------------------------


class Beginning(Struct, frozen=True):
    pass


class End(Struct, frozen=True):
    pass


class FromOffset(Struct, frozen=True):
    offset: int


class FromEnd(Struct, frozen=True):
    """So many records before the end, or from the beginning if there are fewer."""

    count: int


class FromTime(Struct, frozen=True):
    """The first record at or after this time, or the end if there is none."""

    timestamp_ms: int


Start = Beginning | End | FromOffset | FromEnd | FromTime


def resolve(cluster: Cluster, starts: Mapping[TopicPartition, Start]) -> dict[TopicPartition, int]:
    """Offsets to begin at, in as few questions as there are kinds of start."""

    def those(*kinds: type[Start]) -> list[TopicPartition]:
        return [partition for partition, start in starts.items() if isinstance(start, kinds)]

    times = {
        partition: start.timestamp_ms
        for partition, start in starts.items()
        if isinstance(start, FromTime)
    }
    timed = list_offsets(cluster, times) if times else {}
    too_young = [partition for partition, found in timed.items() if found.offset < 0]
    ends = latest_offsets(cluster, [*those(End, FromEnd), *too_young])
    beginnings = earliest_offsets(cluster, those(Beginning, FromEnd))

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
                return ends[partition] if partition in too_young else timed[partition].offset

    return {partition: offset(partition, start) for partition, start in starts.items()}


# ---- reading on -----------------------------------------------------------------------------------------------


class UnderWay(Struct, frozen=True):
    connection: BlockingConnection
    ticket: int
    positions: dict[TopicPartition, int]


class Consumer:
    """`reset` says where to go on when a position is gone or not yet there; None raises OFFSET_OUT_OF_RANGE instead.
    `whole` are the topics of which partitions that are added later are read as well."""

    def __init__(
        self,
        cluster: Cluster,
        starts: Mapping[TopicPartition, Start],
        *,
        reset: Start | None = None,
        whole: Collection[str] = (),
        fetch_wait_ms: int = FETCH_WAIT_MS,
        partition_bytes: int = PARTITION_BYTES,
    ) -> None:
        self.cluster = cluster
        self.reset = reset
        self.whole = whole
        self.next_count = Deadline(NEW_PARTITIONS_S)
        self.fetch_wait_ms = fetch_wait_ms
        self.partition_bytes = partition_bytes
        for topic in {partition.topic for partition in starts}:
            cluster.topic(topic)
        self.positions = resolve(cluster, starts)
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.under_way: list[UnderWay] = []
        self.trouble: Deadline | None = None
        self.next_look = Deadline(0)
        self.backoff = cluster.new_backoff()

    @property
    def at_end(self) -> bool:
        """Everything that was there when each leader last answered has been read."""
        return all(
            position >= self.high_watermarks.get(partition, position + 1)
            for partition, position in self.positions.items()
        )

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from now on, and no others. Trouble with those before is over."""
        for topic in {partition.topic for partition in positions}:
            self.cluster.topic(topic)
        self.positions = dict(positions)
        self.trouble = None
        for partition in [each for each in self.high_watermarks if each not in positions]:
            del self.high_watermarks[partition]

    def records(self, *, stop_at_end: bool = False) -> Iterator[ConsumedRecord]:
        """Records as they come, for ever, or until the end of every partition has been seen."""
        while not (stop_at_end and self.at_end):
            yield from self.poll(1.0)

    def poll(self, timeout_s: float) -> list[ConsumedRecord]:
        """What has arrived, in order per partition; empty if nothing came in time. Positions are then behind it.

        ApiError when the trouble is of the lasting kind, or has lasted for the cluster's timeout.
        """
        if self.whole and self.next_count.passed:
            self.take_up_new_partitions()
        try:
            found = self.fetch(Deadline(timeout_s))
        except ApiError as error:
            self.trouble = self.trouble or Deadline(self.cluster.timeout_s)
            if not error.code.retriable or self.trouble.passed:
                raise
            pause(min(self.backoff.next_s(), timeout_s))
            self.look_again()
            return []
        self.trouble = None
        self.backoff.reset()
        return found

    def look_again(self) -> None:
        """Leaders may have changed. Failing to find out is the next poll's trouble, not a new one."""
        self.next_look = Deadline(PAUSE_S_MAX)
        try:
            self.cluster.refresh(sorted({partition.topic for partition in self.positions}))
        except ApiError as error:
            if not error.code.retriable:
                raise

    def take_up_new_partitions(self) -> None:
        self.next_count = Deadline(NEW_PARTITIONS_S)
        self.look_again()
        known = self.cluster.view.topics
        for topic in self.whole:
            for found in known[topic].partitions if topic in known else ():
                self.positions.setdefault(TopicPartition(topic, found.partition), 0)

    def fetch(self, deadline: Deadline) -> list[ConsumedRecord]:
        failed = self.ask_idle_leaders()
        if failed is not None and not self.under_way:
            raise failed
        consumed: list[ConsumedRecord] = []
        for fetch in self.answered(deadline):
            self.under_way.remove(fetch)
            try:
                response = fetch.connection.finish(
                    fetch.ticket, FetchResponse, timeout_s=self.cluster.timeout_s
                )
                raise_if(response.error_code, "Fetch")
            except ApiError as error:
                failed = error
                continue
            for partition, data in answers(response, fetch.positions, self.names()):
                if self.positions.get(partition) != fetch.positions[partition]:
                    continue  # given up, or set back, since it was asked for
                try:
                    consumed += self.take(partition, data)
                except ApiError as error:
                    failed = error
        # What was read is handed out before any trouble: the positions have moved behind it already.
        if failed is not None and not consumed:
            raise failed
        if failed is not None and self.next_look.passed:
            self.look_again()
        return consumed

    def answered(self, deadline: Deadline) -> list[UnderWay]:
        """Fetches whose answer is here or arriving, at most one per connection."""
        early = [fetch for fetch in self.under_way if fetch.ticket in fetch.connection.early]
        if early:
            # Read while somebody else waited on the same connection: nothing more will make its socket readable.
            return early
        ready = wait_any([fetch.connection for fetch in self.under_way], deadline.left_s())
        # Answers come in the order of the questions, so the oldest on a connection is the one that is here.
        return [next(f for f in self.under_way if f.connection is found) for found in ready]

    def ask_idle_leaders(self) -> ApiError | None:
        """Send a Fetch wherever none is under way. The error that kept some partition from being asked for."""
        self.under_way = [fetch for fetch in self.under_way if fetch.connection.is_open]
        busy = {partition for fetch in self.under_way for partition in fetch.positions}
        failed: ApiError | None = None
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        for partition in self.positions:
            if partition not in busy:
                try:
                    by_leader.setdefault(self.cluster.view.leader(partition), []).append(partition)
                except ApiError as error:
                    failed = error
        for leader, led in by_leader.items():
            try:
                self.ask_leader(self.cluster.connection(leader), led)
            except ApiError as error:
                failed = error
        return failed

    def ask_leader(self, connection: BlockingConnection, led: list[TopicPartition]) -> None:
        request = self.request(led)
        has_ids = all(topic.topic_id != ZERO_ID for topic in request.topics)
        ticket = connection.begin(
            request,
            FetchResponse,
            at_most=None if has_ids else FETCH_BY_NAME,
            timeout_s=self.cluster.timeout_s,
        )
        positions = {partition: self.positions[partition] for partition in led}
        self.under_way.append(UnderWay(connection, ticket, positions))

    def request(self, partitions: list[TopicPartition]) -> FetchRequest:
        by_topic: dict[str, list[FetchPartition]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic, []).append(
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=self.cluster.view.partition(partition).leader_epoch,
                    fetch_offset=self.positions[partition],
                    partition_max_bytes=self.partition_bytes,
                )
            )
        return FetchRequest(
            max_wait_ms=self.fetch_wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=tuple(
                FetchTopic(
                    topic=name,
                    topic_id=self.cluster.view.topic(name).id,
                    partitions=tuple(asked),
                )
                for name, asked in by_topic.items()
            ),
        )

    def names(self) -> Callable[[FetchableTopicResponse], str]:
        by_id = {topic.id: name for name, topic in self.cluster.view.topics.items()}
        return lambda topic: topic.topic or by_id.get(topic.topic_id, "")

    def take(self, partition: TopicPartition, data: PartitionData) -> list[ConsumedRecord]:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self.reset is not None:
            self.positions |= resolve(self.cluster, {partition: self.reset})
            return []
        error = error_of(data.error_code, f"{partition} at offset {self.positions[partition]}")
        if error is not None:
            raise error
        self.high_watermarks[partition] = data.high_watermark
        try:
            found, position = read(
                partition, self.positions[partition], memoryview(data.records or b"")
            )
        except RemoteWireError as wrong:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{partition}: {wrong}") from None
        self.positions[partition] = position
        return found


def read(
    partition: TopicPartition, position: int, data: memoryview
) -> tuple[list[ConsumedRecord], int]:
    """The records from `position` on, and the position behind them. Control batches count, but hold no records."""
    found: list[ConsumedRecord] = []
    topic, number = partition.topic, partition.partition
    for at, header in batch_headers(data):
        if not crc_is_valid(data, at, header):
            raise RemoteWireError(f"the batch at offset {header.base_offset} is damaged")
        if not header.is_control:
            found += [
                ConsumedRecord(topic, number, *record)
                for record in records(data[at : at + header.size])
                if record.offset >= position
            ]
        position = max(position, header.next_offset)
    return found, position


def answers(
    response: FetchResponse,
    asked: Mapping[TopicPartition, int],
    name: Callable[[FetchableTopicResponse], str],
) -> Iterator[tuple[TopicPartition, PartitionData]]:
    for topic in response.responses:
        for data in topic.partitions:
            partition = TopicPartition(name(topic), data.partition_index)
            if partition in asked:
                yield partition, data
