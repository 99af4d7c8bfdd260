"""Write rows to a topic exactly once and in order, across killed drivers and repeated tasks.

    rows ──by partition──► one task per partition ──sorted──► skip what the partition has ──► idempotent producer

One ordered writer per partition leaves a prefix of its rows in the partition, wherever it stops. So the next attempt
skips as many rows as the partition has records, and continues.

The sequence number of a record is its position in the partition, and all attempts use the same producer id: an attempt
continues with that of the last batch in the partition, or else with the id that the driver got for the job. So the
broker rejects a batch of an earlier attempt that is still on its way. If a batch gets another offset than expected,
another client writes to the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct

from barnabas.batch.compression import Compression
from barnabas.batch.header import BatchHeader, batch_headers
from barnabas.client.blocking import BlockingConnection
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import FETCH_BY_NAME_VERSION
from barnabas.client.core import error_of
from barnabas.client.offsets import latest_offsets
from barnabas.client.producer import SEQUENCE_MAX, PendingBatch, Producer
from barnabas.errors import ApiError, ErrorCode
from barnabas.jobs.errors import OtherWriter
from barnabas.model import TopicPartition
from barnabas.security.client_settings import PLAINTEXT, ClientSecurity
from barnabas.spark.record_batches import Columns, encode_records, header_tails
from barnabas.spark.writer import (
    BATCH_BYTES,
    TimestampsMs,
    as_binary,
    explain_too_large,
    one_chunk,
)
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIELDS = ("key", "value", "headers", "timestamp")
RESULT = "partition int, skipped bigint, written bigint"
BUFFER_BYTES = 8 << 20
"""Rows are encoded together up to about this size."""
CLIENT_ID = "barnabas-job"
SEQUENCE_ERRORS = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH)


class CopyTarget(Struct, frozen=True, kw_only=True):
    """The topic to which a job writes, and the producer id and epoch of the job."""

    servers: str
    security: ClientSecurity = PLAINTEXT
    topic: str
    partition_count: int
    identity: tuple[int, int]
    compression: Compression = Compression.NONE
    batch_bytes: int = BATCH_BYTES
    timeout_s: float = 30.0
    starts: Mapping[int, int] = {}
    """The offset of the first row of a partition, if it is not 0."""


def new_identity(cluster: Cluster) -> tuple[int, int]:
    """Return a new producer id and its epoch. Raises ApiError if the cluster has no idempotent producers."""
    return Producer(cluster, idempotent=True).ensure_identity()


def copy_rows(rows: DataFrame, order: Sequence[str], target: CopyTarget) -> DataFrame:
    """Write rows to the topic, those of each partition in the order of these columns.

    The rows have the columns `partition`, `order`, key, value, headers and timestamp. Returns one row for each
    partition with rows: how many were skipped because the partition had them, and how many were written.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is not None:
            partition = first.column("partition")[0].as_py()
            yield write_partition(partition, chain([first], batches), target)

    ordered = (
        rows.select("partition", *dict.fromkeys(order), *FIELDS)
        .repartitionById(target.partition_count, "partition")
        .sortWithinPartitions(*order)
    )
    # Spark measures its Arrow batch after each row. For null lists this takes time in proportion to the batch.
    headers = "coalesce(headers, array()) as headers"
    return ordered.selectExpr("partition", "key", "value", headers, "timestamp").mapInArrow(
        write, RESULT
    )


def copy_partitions(
    spark: SparkSession,
    read: Callable[[int], Iterator[pa.RecordBatch]],
    target: CopyTarget,
) -> DataFrame:
    """Write the records of each partition that `read` returns in order. It runs in the task of the partition.

    Returns the same rows as `copy_rows`.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield write_partition(number, read(number), target)

    count = target.partition_count
    return spark.range(0, count, 1, count).mapInArrow(write, RESULT)


# ---- one task ---------------------------------------------------------------------------------------------------


def write_partition(
    number: int, batches: Iterable[pa.RecordBatch], target: CopyTarget
) -> pa.RecordBatch:
    """Write the records of one partition, which arrive in order. Returns one row of RESULT."""
    with Cluster(
        target.servers,
        client_id=CLIENT_ID,
        timeout_s=target.timeout_s,
        security=target.security,
    ) as cluster:
        writer = PartitionWriter(cluster, TopicPartition(target.topic, number), target)
        for batch in batches:
            writer.add(batch)
        writer.send()
    names = ["partition", "skipped", "written"]
    types = [pa.int32(), pa.int64(), pa.int64()]
    counts = [number, writer.skipped, writer.written]
    arrays = [pa.array([count], kind) for count, kind in zip(counts, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=names)


class PartitionWriter:
    """Appends rows to one partition. `position` is the offset of the next record."""

    def __init__(self, cluster: Cluster, partition: TopicPartition, target: CopyTarget) -> None:
        self.partition = partition
        self.target = target
        self.position = latest_offsets(cluster, [partition])[partition]
        self.to_skip = self.position - target.starts.get(partition.partition, 0)
        self.skipped = 0
        self.written = 0
        self.pending: list[pa.RecordBatch] = []
        self.pending_bytes = 0
        self.producer = Producer(cluster, compression=target.compression, idempotent=True)
        self.producer.identity = (
            identity_of_last_batch(cluster, partition, self.position) or target.identity
        )
        self.producer.sequences[partition] = self.position % (SEQUENCE_MAX + 1)

    def add(self, batch: pa.RecordBatch) -> None:
        skip = min(self.to_skip, batch.num_rows)
        self.to_skip -= skip
        self.skipped += skip
        rest = batch.slice(skip)
        if rest.num_rows == 0:
            return
        self.pending.append(rest)
        self.pending_bytes += rest.nbytes
        if self.pending_bytes >= BUFFER_BYTES:
            self.send()

    def send(self) -> None:
        """Send all buffered rows. Raises ApiError and OtherWriter."""
        if not self.pending:
            return
        rows = pa.Table.from_batches(self.pending).combine_chunks()
        self.pending, self.pending_bytes = [], 0
        for body in encode_records(record_columns(rows), self.target.batch_bytes):
            pending = PendingBatch(body.count, body.builder(self.target.compression))
            self.send_batch(pending)

    def send_batch(self, batch: PendingBatch) -> None:
        try:
            self.producer.send_batches({self.partition: batch})
        except ApiError as error:
            if error.code in SEQUENCE_ERRORS:
                raise self.other_writer(f"the leader returns {error.code.name}") from None
            raise explain_too_large(error, {self.partition: batch.count}) or error from None
        for sent in self.producer.flush():
            # -1: the leader has this batch already, from an attempt whose response was lost.
            if sent.base_offset not in (-1, self.position):
                raise self.other_writer(f"a record got offset {sent.base_offset}")
        self.position += batch.count
        self.written += batch.count

    def other_writer(self, symptom: str) -> OtherWriter:
        why = f"{self.partition}: another client writes to the topic: {symptom} instead of {self.position}"
        hint = f"stop it, delete topic {self.partition.topic}, and run the command again"
        return OtherWriter(f"{why}; {hint}")


def record_columns(rows: pa.Table) -> Columns:
    """Return the columns to encode."""
    microseconds = rows.column("timestamp").cast(pa.int64()).to_numpy()
    timestamps: TimestampsMs = microseconds // 1000
    return Columns(
        as_binary(rows, "key"),
        as_binary(rows, "value"),
        header_tails(one_chunk(rows, "headers")),
        timestamps,
    )


# ---- the last batch of a partition ------------------------------------------------------------------------------


def identity_of_last_batch(
    cluster: Cluster, partition: TopicPartition, end: int
) -> tuple[int, int] | None:
    """Return the producer id and epoch of the last batch if a copy wrote it: its sequence numbers are positions."""
    if end == 0:
        return None
    try:
        header = fetch_header(cluster, partition, end - 1)
    except ApiError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        return None  # retention has deleted all records
    if header is None or header.producer_id < 0 or header.is_transactional:
        return None
    last_sequence = (header.base_sequence + header.last_offset_delta) % (SEQUENCE_MAX + 1)
    if header.next_offset != end or last_sequence != (end - 1) % (SEQUENCE_MAX + 1):
        return None
    return header.producer_id, header.producer_epoch


def fetch_header(cluster: Cluster, partition: TopicPartition, offset: int) -> BatchHeader | None:
    """Return the header of the batch with this offset. Raises ApiError."""

    def ask(
        connection: BlockingConnection, _led: list[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, bytes | ApiError]]:
        fetch = FetchPartition(
            partition=partition.partition, fetch_offset=offset, partition_max_bytes=1
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1,
            topics=(FetchTopic(topic=partition.topic, partitions=(fetch,)),),
        )
        response = connection.exchange(
            request,
            FetchResponse,
            max_version=FETCH_BY_NAME_VERSION,
            timeout_s=cluster.timeout_s,
        )
        for topic in response.responses:
            for data in topic.partitions:
                error = error_of(data.error_code or response.error_code, str(partition))
                yield partition, error or bytes(data.records or b"")

    data = cluster.ask_leaders([partition], ask)[partition]
    found = [header for _, header in batch_headers(memoryview(data))]
    return next((each for each in found if each.base_offset <= offset < each.next_offset), None)
