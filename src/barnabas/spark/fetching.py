"""A task reads one range of offsets: raw batches from the partition's leader, decoded to Arrow.

    position ──Fetch──► bytes ──► next position ──Fetch──► …        the next request is under way
                          └─────► decode ──► Arrow                  while the bytes at hand are decoded

Laws. The position moves only behind batches that were decoded. Whatever may pass (a broker that restarts, a leader that
moves) is tried again until nothing new was heard for `default.api.timeout.ms`. Whatever cannot pass (the log begins
behind the position or ends before the range does, the topic is another one) is DataLoss: an error that names the
offsets, or with fail_on_data_loss=False a warning that names them.

Python workers outlive their tasks, so connections and what is known of leaders are kept for the next one: a task of a
micro-batch then costs one round trip.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pyarrow as pa

from barnabas.client.blocking import BlockingConnection, Deadline, pause
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import FETCH_BY_NAME_VERSION
from barnabas.client.core import raise_if
from barnabas.client.offsets import earliest_offsets, latest_offsets
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import ZERO_ID
from barnabas.retry import Backoff
from barnabas.spark.arrow_records import decode_batches
from barnabas.spark.ranges import DataLoss, FetchSettings, OffsetRange
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.wire.records import batch_headers

logger = logging.getLogger("barnabas.spark")

UNKNOWN_PATIENCE_S = 5.0
"""A broker that just started may for a moment not know a topic, or not all of its log. One that was deleted stays
unknown."""
DAMAGE_PATIENCE = 3
"""So often are the same bytes asked for before they are called damaged: on the way they may have been, once."""

TOPIC_UNKNOWN = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
})  # fmt: skip


class Damaged(ApiError):
    """Bytes that stay wrong however often they are asked for; CORRUPT_MESSAGE itself may be tried again."""

    def __init__(self, why: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, why)


def read_range(
    wanted: OffsetRange, settings: FetchSettings
) -> Generator[pa.RecordBatch, None, None]:
    """All records of the range, in order. DataLoss if some are gone; ApiError if the cluster cannot be read."""
    if wanted.start >= wanted.end:
        return
    with borrowed_cluster(settings) as cluster:
        reader = RangeReader(cluster, wanted, settings)
        try:
            yield from reader.batches()
        finally:
            reader.abandon()


class RangeReader:
    def __init__(self, cluster: Cluster, wanted: OffsetRange, settings: FetchSettings) -> None:
        self.cluster = cluster
        self.wanted = wanted
        self.settings = settings
        self.topic_id = wanted.topic_id
        self.position = wanted.start
        self.under_way: tuple[BlockingConnection, int] | None = None
        self.trouble: ApiError | None = None
        self.has_looked = False
        self.heard_nothing = Deadline(settings.deadline_ms / 1000)
        self.unknown: Deadline | None = None
        self.backoff = Backoff(
            settings.retry_backoff_ms / 1000,
            settings.retry_backoff_ms_max / 1000,
            random=cluster.random,
        )
        self.damaged = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        while self.position < self.wanted.end:
            decoded: list[pa.RecordBatch] = []
            try:
                if self.trouble is not None:
                    self.look_again(self.trouble)
                decoded = self.decode(self.receive())
            except Damaged:
                raise
            except ApiError as error:
                self.wait(error)
            except DataLoss as loss:
                self.accept(loss)
            yield from decoded
            if decoded:
                # However long the records were looked at, that was not the cluster's silence.
                self.heard_nothing = Deadline(self.settings.deadline_ms / 1000)

    # ---- one fetch ------------------------------------------------------------------------------------------------

    def receive(self) -> PartitionData:
        """The answer to the request under way; it is sent now if there is none."""
        if self.under_way is None:
            self.ask(self.position)
        assert self.under_way is not None
        connection, ticket = self.under_way
        timeout_s = self.settings.request_timeout_ms / 1000
        response = connection.finish(ticket, FetchResponse, timeout_s=timeout_s)
        self.under_way = None
        raise_if(response.error_code, str(self.wanted))
        for topic in response.responses:
            for data in topic.partitions:
                if data.partition_index == self.wanted.partition:
                    raise_if(data.error_code, f"{self.wanted} at {self.position}")
                    return data
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer about {self.wanted}")

    def ask(self, position: int) -> None:
        partition = self.wanted.topic_partition
        if self.wanted.topic not in self.cluster.view.topics or self.topic_id is None:
            self.refresh()
        connection = self.cluster.connection(self.cluster.view.leader(partition))
        by_id = self.topic_id != ZERO_ID and takes_topic_ids(connection)
        if not by_id and not self.has_looked:
            # By its name alone, nobody would notice that the topic is another one now.
            self.refresh()
        request = FetchRequest(
            max_wait_ms=self.settings.fetch_wait_ms,
            min_bytes=1,
            max_bytes=self.settings.fetch_bytes,
            isolation_level=int(self.settings.reads_committed),
            topics=(
                FetchTopic(
                    topic=self.wanted.topic,
                    topic_id=self.topic_id or ZERO_ID,
                    partitions=(
                        FetchPartition(
                            partition=self.wanted.partition,
                            current_leader_epoch=self.cluster.view.partition(
                                partition
                            ).leader_epoch,
                            fetch_offset=position,
                            partition_max_bytes=self.settings.fetch_bytes,
                        ),
                    ),
                ),
            ),
        )
        ticket = connection.begin(
            request,
            FetchResponse,
            at_most=None if by_id else FETCH_BY_NAME_VERSION,
            timeout_s=self.settings.request_timeout_ms / 1000,
        )
        self.under_way = connection, ticket

    def decode(self, data: PartitionData) -> list[pa.RecordBatch]:
        view = memoryview(data.records or b"")
        try:
            self.check_beginning(view, data.log_start_offset)
            following = position_behind(view, self.position, self.wanted.end)
            if self.position < following < self.wanted.end:
                self.ask_ahead(following)
            decoded, behind = decode_batches(
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
            self.suspect(error)
            return []
        assert behind in (self.position, following) or following >= self.wanted.end
        if following > self.position:
            self.moved_to(following)
        else:
            self.nothing_came(data)
        return decoded

    def check_beginning(self, view: memoryview, log_start: int) -> None:
        """A gap before the first batch is what compaction leaves, unless the log begins behind the position by now."""
        _, first = next(batch_headers(view), (0, None))
        if first is not None and first.base_offset > self.position and log_start > self.position:
            raise self.loss(min(log_start, self.wanted.end), f"the log begins at {log_start}")

    def ask_ahead(self, position: int) -> None:
        try:
            self.ask(position)
        except ApiError:
            # Whatever it is, the bytes at hand are good. It will show again when it is the next request's turn.
            self.under_way = None

    def moved_to(self, position: int) -> None:
        self.position = position
        self.trouble = None
        self.unknown = None
        self.damaged = 0
        self.backoff.reset()
        self.heard_nothing = Deadline(self.settings.deadline_ms / 1000)

    def suspect(self, error: RemoteWireError) -> None:
        self.abandon()
        self.damaged += 1
        if self.damaged >= DAMAGE_PATIENCE:
            raise Damaged(str(error)) from None

    def nothing_came(self, data: PartitionData) -> None:
        if data.records:
            size = len(data.records)
            raise Damaged(f"{self.wanted} at {self.position}: no whole batch in {size} bytes")
        # A throttling broker sends empty answers for a while. Below the end of a log there is always something to send,
        # since its last record stays; a part that remains empty is not a gap, and not to be passed over in silence.
        end = data.last_stable_offset if self.settings.reads_committed else data.high_watermark
        if self.heard_nothing.passed:
            raise self.loss(self.wanted.end, f"the broker sends nothing, its log ends at {end}")
        pause(self.backoff.next_s())

    def abandon(self) -> None:
        """An answer that nobody will read must not be taken for the next one."""
        if self.under_way is not None:
            self.under_way[0].close()
            self.under_way = None

    # ---- trouble --------------------------------------------------------------------------------------------------

    def wait(self, error: ApiError) -> None:
        """Until it is worth to look again; raises the error if that is never."""
        self.abandon()
        first = self.trouble is None
        self.trouble = error
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE and not error.code.retriable:
            raise error
        if self.heard_nothing.left_s() <= self.backoff.delay_s:
            waited = f"nothing new for {self.settings.deadline_ms} ms (default.api.timeout.ms)"
            raise ApiError(
                error.code, f"{self.wanted} at {self.position}: {error.message}; {waited}"
            )
        # A connection kept from an earlier task may have ended in between: that is seen only now, and costs no pause.
        if not first:
            pause(self.backoff.next_s())

    def look_again(self, trouble: ApiError) -> None:
        """What has become of the topic, its leader and its log. ApiError if nobody can say."""
        self.refresh()
        if trouble.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            return
        partition = self.wanted.topic_partition
        first = earliest_offsets(self.cluster, [partition])[partition]
        end = latest_offsets(self.cluster, [partition])[partition]
        if self.position < first:
            raise self.loss(min(first, self.wanted.end), f"the log begins at {first}")
        if self.position > end and self.is_unknown_for_long():
            raise self.loss(self.wanted.end, f"the log ends at {end}")

    def refresh(self) -> None:
        """Ask for the topic as it is now. A topic under another id is another topic."""
        view = self.cluster.refresh([self.wanted.topic])
        error = view.errors.get(self.wanted.topic)
        if error is not None and error.code in TOPIC_UNKNOWN and self.is_unknown_for_long():
            raise self.loss(self.wanted.end, "the topic was deleted")
        found = view.topic(self.wanted.topic)
        if self.topic_id is None:
            self.topic_id = found.id
        elif ZERO_ID not in (found.id, self.topic_id) and found.id != self.topic_id:
            raise self.loss(self.wanted.end, "the topic was deleted and created again")
        self.has_looked = True

    def is_unknown_for_long(self) -> bool:
        self.unknown = self.unknown or Deadline(
            min(UNKNOWN_PATIENCE_S, self.settings.deadline_ms / 1000 / 2)
        )
        return self.unknown.passed

    def loss(self, end: int, why: str) -> DataLoss:
        return DataLoss(self.wanted.topic, self.wanted.partition, self.position, end, why)

    def accept(self, loss: DataLoss) -> None:
        self.abandon()
        if self.settings.fail_on_data_loss:
            raise loss
        logger.warning("barnabas: %s; going on, because failOnDataLoss is false", loss)
        self.moved_to(loss.end)


def takes_topic_ids(connection: BlockingConnection) -> bool:
    versions = connection.conversation.versions.get(FetchRequest.API_KEY, range(1))
    return versions[-1] > FETCH_BY_NAME_VERSION


def position_behind(view: memoryview, position: int, end: int) -> int:
    """Where to read on once all whole batches in the bytes are decoded. `end` if a batch stands there or behind it:
    what lies between is a gap."""
    for _, header in batch_headers(view):
        if header.base_offset >= end:
            return end
        position = max(position, header.next_offset)
    return position


# ---- connections that outlive a task --------------------------------------------------------------------------

idle_clusters: dict[tuple[int, str, str], list[Cluster]] = {}


@contextmanager
def borrowed_cluster(settings: FetchSettings) -> Iterator[Cluster]:
    """One nobody else uses meanwhile. By process, because a fork must not speak on its parent's connections."""
    key = (os.getpid(), settings.bootstrap_servers, settings.client_id)
    idle = idle_clusters.setdefault(key, [])
    try:
        cluster = idle.pop()
    except IndexError:
        cluster = Cluster(settings.bootstrap_servers, client_id=settings.client_id)
    cluster.timeout_s = settings.request_timeout_ms / 1000
    cluster.connect_timeout_s = min(settings.connect_timeout_ms, settings.request_timeout_ms) / 1000
    try:
        yield cluster
    finally:
        idle.append(cluster)


def close_idle_clusters() -> None:
    for idle in idle_clusters.values():
        while idle:
            idle.pop().close()
