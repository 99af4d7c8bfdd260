"""Topics as Spark sinks: rows become records, at least once.

    task     rows ─► one partition's rows together ─► record batches ─► an idempotent producer
    driver   Written of every task ─► commit

A retry of the producer writes nothing twice; a retry of a task, of a micro-batch or of the whole query does, because
what its first attempt wrote stays. Each task therefore tells the driver under which producer id and epoch it wrote,
and where: all that a commit needs that makes a transaction of it visible, and an abort that leaves it hidden, once
tasks write transactions. Until then both have nothing to do.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from barnabas.client.blocking import Deadline, now_ms, pause
from barnabas.client.cluster import Cluster
from barnabas.client.producer import PendingBatch, Producer, SentBatch, available_partitions
from barnabas.client.view import TopicView
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.retry import Backoff
from barnabas.spark.client_settings import number
from barnabas.spark.lookup import connect, explained, no_topic
from barnabas.spark.options import WriteOptions
from barnabas.spark.record_batches import EncodedRecords, Columns, encode_records, header_tails, partitions_of_keys

log = logging.getLogger("barnabas.spark")

Placement = np.ndarray[Any, np.dtype[np.int64]]

BATCH_BYTES = 512 << 10
"""Well below message.max.bytes, and large enough that a round trip per batch does not matter."""
BUFFER_BYTES = 16 << 20
LOOK_AGAIN_S = 0.1
"""Rows are gathered up to this size, so that many partitions still get large batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRange:
    """Records acknowledged, one behind the other; offset -1 where the broker did not tell."""

    topic: str
    partition: int
    base_offset: int
    count: int


@dataclass(frozen=True)
class Written(WriterCommitMessage):  # type: ignore[misc]
    """What one task wrote, and as whom: the driver needs it to end the transaction of a task."""

    producer_id: int
    producer_epoch: int
    ranges: tuple[WrittenRange, ...]
    query_id: str | None = None
    batch_id: int | None = None


class TopicWriter:
    def __init__(self, options: WriteOptions, columns: Sequence[str]) -> None:
        self.options = options
        self.columns = tuple(columns)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        query_id, batch_id = of_which_batch()
        with connect(self.options.bootstrap_servers, timeouts(self.options.client)) as cluster:
            sink = Sink(cluster, self.options)
            try:
                for batch in iterator:
                    sink.add(pa.RecordBatch.from_arrays(batch.columns, names=list(self.columns)))
                sink.send()
            except ApiError as error:
                raise too_large(error, sink.sending) or explained(error) from None
            producer_id, epoch = sink.producer.identity or (-1, -1)
            return Written(
                producer_id=producer_id,
                producer_epoch=epoch,
                ranges=written_ranges(sink.producer.flush()),
                query_id=query_id,
                batch_id=batch_id,
            )


class BatchWriter(TopicWriter, DataSourceArrowWriter):  # type: ignore[misc]
    def commit(self, messages: list[Written | None]) -> None:
        """The records are visible already."""

    def abort(self, messages: list[Written | None]) -> None:
        """What was written stays: at least once."""


class StreamWriter(TopicWriter, DataSourceStreamArrowWriter):  # type: ignore[misc]
    def commit(self, messages: list[Written | None], batchId: int) -> None:  # noqa: N803
        """The records are visible already."""

    def abort(self, messages: list[Written | None], batchId: int) -> None:  # noqa: N803
        """What was written stays: at least once."""


class Sink:
    """Gathers rows and sends them, those of one partition in one batch after the other."""

    def __init__(self, cluster: Cluster, options: WriteOptions) -> None:
        self.cluster = cluster
        self.options = options
        self.producer = Producer(
            cluster,
            acks=options.acks,
            compression=options.compression,
            idempotent=options.idempotent,
        )
        self.random = Random()
        self.batch_bytes = min(
            number(options.client, "batch.size", BATCH_BYTES),
            number(options.client, "max.request.size", BATCH_BYTES),
        )
        self.buffer_bytes = min(BUFFER_BYTES, number(options.client, "buffer.memory", BUFFER_BYTES))
        self.gathered: list[pa.RecordBatch] = []
        self.gathered_bytes = 0
        self.sending: dict[TopicPartition, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        self.gathered.append(batch)
        self.gathered_bytes += batch.get_total_buffer_size()
        if self.gathered_bytes >= self.buffer_bytes:
            self.send()

    def send(self) -> None:
        if not self.gathered:
            return
        table = pa.Table.from_batches(self.gathered).combine_chunks()
        self.gathered, self.gathered_bytes = [], 0
        timestamp = now_ms()
        queues: dict[TopicPartition, Iterator[EncodedRecords]] = {
            partition: encode_records(columns, self.batch_bytes)
            for partition, columns in self.by_partition(table)
        }
        while queues:
            batches = {}
            for partition in list(queues):
                body = next(queues[partition], None)
                if body is None:
                    del queues[partition]
                    continue
                build = body.builder(timestamp, self.options.compression)
                batches[partition] = PendingBatch(body.count, build)
            if batches:
                self.sending = {partition: batch.count for partition, batch in batches.items()}
                self.producer.send_batches(batches)

    def by_partition(self, table: pa.Table) -> Iterator[tuple[TopicPartition, Columns]]:
        for topic, rows in self.by_topic(table):
            placed = self.place(topic, rows)
            order = np.argsort(placed, kind="stable")
            found, starts = np.unique(placed[order], return_index=True)
            ordered = pa.array(order)
            ends = [*starts[1:], len(order)]
            for partition, begin, end in zip(found, starts, ends, strict=True):
                chosen = rows.take(ordered[int(begin) : int(end)])
                yield TopicPartition(topic, int(partition)), columns_of(chosen)

    def by_topic(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        if self.options.topic is not None:
            yield self.options.topic, table
            return
        column = table.column("topic")
        if column.null_count:
            why = "a row has no topic; fill the column, or set the option topic"
            raise ConfigError("column topic", why)
        names = pc.unique(column).to_pylist()
        for name in sorted(names):
            yield name, table if len(names) == 1 else table.filter(pc.equal(column, name))

    def place(self, topic: str, rows: pa.Table) -> Placement:
        """The partition of each row: the one it names, or that of its key, or any one for all the rest."""
        view = self.topic(topic)
        count = len(view.partitions)
        names = rows.column_names
        placed = np.full(rows.num_rows, -1, np.int64)
        if "key" in names:
            placed = partitions_of_keys(as_binary(rows, "key"), count)
        if "partition" in names and rows.column("partition").null_count < rows.num_rows:
            named = pc.fill_null(rows.column("partition"), -1).combine_chunks()
            given = np.asarray(named.to_numpy(zero_copy_only=False), np.int64)
            is_null = np.asarray(rows.column("partition").is_null())
            wrong = given[~is_null & ((given < 0) | (given >= count))]
            if len(wrong):
                why = f"{topic} has no partition {wrong[0]}, only 0 to {count - 1}"
                raise ConfigError("column partition", why)
            placed = np.where(is_null, placed, given)
        free = np.nonzero(placed < 0)[0]
        if len(free):
            placed[free] = self.spread(len(free), available_partitions(view), rows.nbytes)
        return placed

    def spread(self, count: int, partitions: list[int], size_bytes: int) -> Placement:
        """Rows without a key go to any partition: to one while they fill one batch, else to several at once."""
        pieces = min(len(partitions), count, 1 + size_bytes // self.batch_bytes)
        chosen = np.array(self.random.sample(partitions, pieces), np.int64)
        return chosen[np.arange(count) * pieces // count]

    def topic(self, name: str) -> TopicView:
        """The driver found the cluster before it gave out tasks: a broker that does not answer now is away for a
        while."""
        deadline = Deadline(self.cluster.timeout_s)
        backoff = Backoff(LOOK_AGAIN_S, LOOK_AGAIN_S, random=self.cluster.random)
        while True:
            try:
                return self.cluster.topic(name)
            except ApiError as error:
                is_away = error.code is ErrorCode.NETWORK_EXCEPTION
                if not is_away or deadline.passed:
                    raise unknown_topic(error, name, self.cluster, self.options) from None
            pause(backoff.next_s())


def written_ranges(batches: Iterable[SentBatch]) -> tuple[WrittenRange, ...]:
    """Batches that follow each other in the log are one range: a task may send thousands."""
    done: list[WrittenRange] = []
    last: dict[TopicPartition, WrittenRange] = {}
    for partition, base_offset, count in batches:
        before = last.get(partition)
        if before is not None and before.base_offset + before.count == base_offset:
            last[partition] = replace(before, count=before.count + count)
            continue
        if before is not None:
            done.append(before)
        last[partition] = WrittenRange(
            topic=partition.topic,
            partition=partition.partition,
            base_offset=base_offset,
            count=count,
        )
    return (*done, *last.values())


def columns_of(rows: pa.Table) -> Columns:
    names = rows.column_names
    return Columns(
        as_binary(rows, "key") if "key" in names else None,
        as_binary(rows, "value"),
        header_tails(one_chunk(rows, "headers")) if "headers" in names else None,
    )


def as_binary(rows: pa.Table, name: str) -> pa.Array:
    column = one_chunk(rows, name)
    return column if pa.types.is_binary(column.type) else column.cast(pa.large_binary())


def one_chunk(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def of_which_batch() -> tuple[str | None, int | None]:
    context = TaskContext.get()
    if context is None:
        return None, None
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    query_id = context.getLocalProperty("sql.streaming.queryId")
    return query_id, None if batch_id is None else int(batch_id)


def timeouts(settings: Mapping[str, str]) -> dict[str, str]:
    """A call is retried until its deadline, which is what delivery.timeout.ms means."""
    found = dict(settings)
    if "delivery.timeout.ms" in found:
        found["request.timeout.ms"] = found["delivery.timeout.ms"]
    return found


def check_topic_exists(options: WriteOptions, topic: str) -> None:
    """Before the job: nothing is written where a topic is missing, and none is created by a slip of the pen."""
    with connect(options.bootstrap_servers, options.client) as cluster:
        try:
            cluster.topic(topic)
        except ApiError as error:
            raise unknown_topic(error, topic, cluster, options) from None


def too_large(error: ApiError, sending: Mapping[TopicPartition, int]) -> ConfigError | None:
    """`sending` has the records in the batch for each partition; the message begins with the one that was refused."""
    if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
        return None
    message = error.message or ""
    counts = [count for found, count in sending.items() if message.startswith(f"{found}:")]
    if counts == [1]:
        hint = "a record is larger than the topic allows; raise its max.message.bytes"
        return ConfigError("max.message.bytes", f"{message}; {hint}")
    hint = "lower it, or raise max.message.bytes of the topic"
    return ConfigError("kafka.batch.size", f"{message}; {hint}")


def unknown_topic(
    error: ApiError, topic: str, cluster: Cluster, options: WriteOptions
) -> Exception:
    if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
        option = "column topic" if options.topic is None else "topic"
        return ConfigError(option, no_topic(topic, cluster))
    return explained(error)
