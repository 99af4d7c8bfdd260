"""Read task: fetches one offset range from the partition's leader and decodes it to Arrow.

    position ──Fetch──► bytes ──► next position ──Fetch──► …        the next request is in flight
                          └─────► decode ──► Arrow                  while these bytes are decoded

The position advances only over decoded batches. Transient errors (a broker restarts, a leader moves) are retried until
there is no progress for `default.api.timeout.ms`. DataLoss means that the log no longer has all offsets of the range,
or that the topic was deleted or recreated. With fail_on_data_loss=False, it is logged and the lost range is skipped.

Python workers outlive their tasks and keep connections and metadata, so a task often costs only one round trip.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator

import pyarrow as pa

from barnabas.batch.header import batch_headers
from barnabas.client.blocking import BlockingConnection, Deadline, pause
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import FETCH_BY_NAME_VERSION
from barnabas.client.core import raise_if
from barnabas.client.offsets import earliest_offsets, latest_offsets
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import ZERO_ID
from barnabas.retry import Backoff
from barnabas.spark.arrow_records import decode_batches
from barnabas.spark.kept_clients import borrow_cluster
from barnabas.spark.ranges import DELETED_TOPIC, DataLoss, FetchSettings, OffsetRange
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

logger = logging.getLogger("barnabas.spark")

UNKNOWN_TOPIC_TIMEOUT_S = 5.0
"""A broker that just started may not know a topic or its whole log yet. After this time, they count as lost."""
CORRUPT_ATTEMPTS = 3
"""Number of fetches of the same offset before the data counts as corrupt in the log, not only in transit."""

TOPIC_UNKNOWN = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
})  # fmt: skip


class CorruptData(ApiError):
    """Data that is corrupt in every attempt. Not retried, unlike other errors with CORRUPT_MESSAGE."""

    def __init__(self, why: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, why)


def read_range(
    wanted: OffsetRange, settings: FetchSettings
) -> Generator[pa.RecordBatch, None, None]:
    """Yield all records of the range, in order. Raises DataLoss if some are lost, ApiError if fetching fails."""
    if wanted.start >= wanted.end:
        return
    with borrow_cluster(settings.client) as cluster:
        fetcher = RangeFetcher(cluster, wanted, settings)
        try:
            yield from fetcher.batches()
        finally:
            fetcher.cancel_fetch()


class RangeFetcher:
    """Fetches one offset range. `position` is the next offset to read."""

    def __init__(self, cluster: Cluster, wanted: OffsetRange, settings: FetchSettings) -> None:
        self.cluster = cluster
        self.wanted = wanted
        self.settings = settings
        self.topic_id = wanted.topic_id
        self.position = wanted.start
        self.in_flight: tuple[BlockingConnection, int] | None = None
        self.last_error: ApiError | None = None
        self.has_checked_topic = False
        self.progress_deadline = Deadline(settings.deadline_ms / 1000)
        self.unknown_deadline: Deadline | None = None
        self.backoff = Backoff(
            settings.retry_backoff_ms / 1000,
            settings.retry_backoff_ms_max / 1000,
            random=cluster.random,
        )
        self.corrupt_count = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        while self.position < self.wanted.end:
            decoded: list[pa.RecordBatch] = []
            try:
                if self.last_error is not None:
                    self.diagnose(self.last_error)
                decoded = self.decode(self.receive())
            except CorruptData:
                raise
            except ApiError as error:
                self.back_off(error)
            except DataLoss as loss:
                self.handle_loss(loss)
            yield from decoded
            if decoded:
                # The time that the caller spent on the records does not count.
                self.progress_deadline = Deadline(self.settings.deadline_ms / 1000)

    # ---- one fetch ------------------------------------------------------------------------------------------------

    def receive(self) -> PartitionData:
        """Return the response to the fetch in flight. Sends a fetch first if there is none."""
        if self.in_flight is None:
            self.send_fetch(self.position)
        assert self.in_flight is not None
        connection, correlation_id = self.in_flight
        response = connection.receive(
            correlation_id, FetchResponse, timeout_s=self.cluster.timeout_s
        )
        self.in_flight = None
        raise_if(response.error_code, str(self.wanted))
        for topic in response.responses:
            for data in topic.partitions:
                if data.partition_index == self.wanted.partition:
                    raise_if(data.error_code, f"{self.wanted} at {self.position}")
                    return data
        why = f"the response has no data for {self.wanted}"
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, why)

    def send_fetch(self, position: int) -> None:
        partition = self.wanted.topic_partition
        if self.wanted.topic not in self.cluster.view.topics or self.topic_id is None:
            self.refresh()
        connection = self.cluster.connection(self.cluster.view.leader(partition))
        by_id = self.topic_id != ZERO_ID and supports_topic_ids(connection)
        if not by_id and not self.has_checked_topic:
            # A fetch by name would not detect that the topic was recreated.
            self.refresh()
        fetch = FetchPartition(
            partition=partition.partition,
            current_leader_epoch=self.cluster.view.partition(partition).leader_epoch,
            fetch_offset=position,
            partition_max_bytes=self.settings.fetch_bytes,
        )
        topic_id = self.topic_id or ZERO_ID
        request = FetchRequest(
            max_wait_ms=self.settings.fetch_wait_ms,
            min_bytes=1,
            max_bytes=self.settings.fetch_bytes,
            isolation_level=int(self.settings.reads_committed),
            topics=(FetchTopic(topic=partition.topic, topic_id=topic_id, partitions=(fetch,)),),
        )
        correlation_id = connection.send(
            request,
            FetchResponse,
            max_version=None if by_id else FETCH_BY_NAME_VERSION,
            timeout_s=self.cluster.timeout_s,
        )
        self.in_flight = connection, correlation_id

    def decode(self, data: PartitionData) -> list[pa.RecordBatch]:
        """Decode a response and advance the position. The next fetch is sent first, so that it runs meanwhile."""
        view = memoryview(data.records or b"")
        try:
            self.check_first_batch(view, data.log_start_offset)
            next_offset = next_position(view, self.position, self.wanted.end)
            if self.position < next_offset < self.wanted.end:
                self.prefetch(next_offset)
            decoded, decoded_end = decode_batches(
                view,
                topic=self.wanted.topic,
                partition=self.wanted.partition,
                start=self.position,
                end=self.wanted.end,
                columns=self.settings.columns,
                check_crcs=self.settings.checks_crcs,
                aborted=data.aborted_transactions or (),
            )
        except RemoteWireError as error:
            self.retry_corrupt(error)
            return []
        assert decoded_end in (self.position, next_offset) or next_offset >= self.wanted.end
        if next_offset > self.position:
            self.advance(next_offset)
        else:
            self.handle_empty_response(data)
        return decoded

    def check_first_batch(self, view: memoryview, log_start: int) -> None:
        """Raise DataLoss if the log starts after the position. Compaction causes other gaps before the first batch."""
        _, first = next(batch_headers(view), (0, None))
        if first is not None and first.base_offset > self.position and log_start > self.position:
            raise self.loss(min(log_start, self.wanted.end), f"the log begins at {log_start}")

    def prefetch(self, position: int) -> None:
        try:
            self.send_fetch(position)
        except ApiError:
            # The current response is still valid. The next fetch reports the error again.
            self.in_flight = None

    def advance(self, position: int) -> None:
        self.position = position
        self.last_error = None
        self.unknown_deadline = None
        self.corrupt_count = 0
        self.backoff.reset()
        self.progress_deadline = Deadline(self.settings.deadline_ms / 1000)

    def retry_corrupt(self, error: RemoteWireError) -> None:
        """Discard the fetch in flight, to fetch the corrupt data again. Raises CorruptData after the last attempt."""
        self.cancel_fetch()
        self.corrupt_count += 1
        if self.corrupt_count >= CORRUPT_ATTEMPTS:
            raise CorruptData(str(error)) from None

    def handle_empty_response(self, data: PartitionData) -> None:
        """Wait before the next fetch. Raises CorruptData for a partial batch, DataLoss after the deadline."""
        if data.records:
            why = f"no complete batch in {len(data.records)} bytes"
            raise CorruptData(f"{self.wanted} at {self.position}: {why}")
        # A broker that throttles sends empty responses for a while. If they do not stop, the log has lost its end:
        # otherwise there is data at or after the position, because compaction keeps the last record.
        end = data.last_stable_offset if self.settings.reads_committed else data.high_watermark
        if self.progress_deadline.passed:
            raise self.loss(self.wanted.end, f"the broker returns no data; its log ends at {end}")
        pause(self.backoff.next_s())

    def cancel_fetch(self) -> None:
        """Close the connection of the fetch in flight, so that its response is not taken for a later one."""
        if self.in_flight is not None:
            self.in_flight[0].close()
            self.in_flight = None

    # ---- errors ---------------------------------------------------------------------------------------------------

    def back_off(self, error: ApiError) -> None:
        """Wait before the next attempt. Raises an error that is not retriable, and any error after the deadline."""
        self.cancel_fetch()
        is_first = self.last_error is None
        self.last_error = error
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE and not error.code.retriable:
            raise error
        if self.progress_deadline.left_s() <= self.backoff.delay_s:
            why = f"no progress for {self.settings.deadline_ms} ms (default.api.timeout.ms)"
            raise ApiError(error.code, f"{self.wanted} at {self.position}: {error.message}; {why}")
        # Retry at once after the first error: an idle connection may have been closed since the last task.
        if not is_first:
            pause(self.backoff.next_s())

    def diagnose(self, last_error: ApiError) -> None:
        """Refresh metadata after an error, and check the log after OFFSET_OUT_OF_RANGE. Raises DataLoss or ApiError."""
        self.refresh()
        if last_error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            return
        partition = self.wanted.topic_partition
        start = earliest_offsets(self.cluster, [partition])[partition]
        end = latest_offsets(self.cluster, [partition])[partition]
        if self.position < start:
            raise self.loss(min(start, self.wanted.end), f"the log begins at {start}")
        if self.position > end and self.is_unknown_too_long():
            raise self.loss(self.wanted.end, f"the log ends at {end}")

    def refresh(self) -> None:
        """Refresh the topic's metadata. Raises DataLoss if the topic was deleted or has another id."""
        view = self.cluster.refresh([self.wanted.topic])
        error = view.errors.get(self.wanted.topic)
        if error is not None and error.code in TOPIC_UNKNOWN and self.is_unknown_too_long():
            raise self.loss(self.wanted.end, DELETED_TOPIC)
        found = view.topic(self.wanted.topic)
        if self.topic_id is None:
            self.topic_id = found.id
        elif ZERO_ID not in (found.id, self.topic_id) and found.id != self.topic_id:
            raise self.loss(self.wanted.end, "the topic was deleted and created again")
        self.has_checked_topic = True

    def is_unknown_too_long(self) -> bool:
        """Return whether the timeout has passed since the first call after the last progress."""
        self.unknown_deadline = self.unknown_deadline or Deadline(
            min(UNKNOWN_TOPIC_TIMEOUT_S, self.settings.deadline_ms / 1000 / 2)
        )
        return self.unknown_deadline.passed

    def loss(self, end: int, why: str) -> DataLoss:
        return DataLoss(self.wanted.topic, self.wanted.partition, self.position, end, why)

    def handle_loss(self, loss: DataLoss) -> None:
        self.cancel_fetch()
        if self.settings.fail_on_data_loss:
            raise loss
        logger.warning("barnabas: %s; continuing, because failOnDataLoss is false", loss)
        self.advance(loss.end)


def supports_topic_ids(connection: BlockingConnection) -> bool:
    versions = connection.protocol.versions.get(FetchRequest.API_KEY, range(1))
    return versions[-1] > FETCH_BY_NAME_VERSION


def next_position(view: memoryview, position: int, end: int) -> int:
    """Return the position after all complete batches, or `end` if a batch begins at or after `end`."""
    for _, header in batch_headers(view):
        if header.base_offset >= end:
            return end
        position = max(position, header.next_offset)
    return position
