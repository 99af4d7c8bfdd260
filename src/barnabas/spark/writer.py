"""The Spark sink: writes rows as records.

    task     rows ─► grouped by partition ─► record batches ─► idempotent producer
    driver   TaskCommit of every task ─► commit or abort

At least once: a retry in the producer writes no duplicates. A retry of a task, a micro-batch or a query does, because
the records of the first attempt stay in the log. Commit and abort do nothing.

Exactly once (exactlyOnce=true): a task writes in a transaction and leaves it open (task_transactions.py). The driver
ends the transactions of all tasks (batch_commit.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from random import Random
from typing import Any, NamedTuple
from uuid import uuid4

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
from barnabas.errors import ApiError, BarnabasError, ConfigError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.retry import Backoff
from barnabas.spark.batch_commit import BatchCommit
from barnabas.spark.brief_errors import brief_errors
from barnabas.spark.client_settings import integer_setting
from barnabas.spark.commit_records import SinkKind, TaskTransaction
from barnabas.spark.kept_clients import kept_producers
from barnabas.spark.lookup import (
    RETRY_S,
    connect,
    describe_missing_topic,
    explain_error,
    wait_until_reachable,
)
from barnabas.spark.options import EXACTLY_ONCE, WriteOptions
from barnabas.spark.record_batches import (
    Columns,
    EncodedRecords,
    encode_records,
    header_tails,
    partitions_of_keys,
)
from barnabas.spark.task_transactions import (
    aborted_on_error,
    explain_timed_out,
    fresh_transactional_id,
    open_transaction,
    reusable_transactional_id,
    transaction_identity,
)
from barnabas.spark.worker_process import TaskObject, exempt_modules_from_gc

logger = logging.getLogger("barnabas.spark")

PartitionNumbers = np.ndarray[Any, np.dtype[np.int64]]
TimestampsMs = np.ndarray[Any, np.dtype[np.int64]]

BATCH_BYTES = 512 << 10
"""Maximum size of a batch. Well below the default of message.max.bytes; larger batches are hardly faster."""
BUFFER_BYTES = 16 << 20
"""Rows are buffered up to this size, so that batches are large even with many partitions."""
INT16_MAX = 0x7FFF


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRange:
    """Written records with consecutive offsets. `base_offset` is -1 if the broker did not return it."""

    topic: str
    partition: int
    base_offset: int
    count: int


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):  # type: ignore[misc]
    """The records that one task wrote, and its producer id and epoch (-1 if it has none)."""

    producer_id: int
    producer_epoch: int
    ranges: tuple[WrittenRange, ...]
    query_id: str | None = None
    batch_id: int | None = None
    run_id: str = ""
    transaction: TaskTransaction | None = None
    """The open transaction of the task. None if it wrote nothing, or without exactlyOnce."""


class TopicWriter(TaskObject):
    """Base of the batch and the stream writer: writes the rows of one task."""

    def __init__(self, options: WriteOptions, columns: Sequence[str]) -> None:
        self.options = options
        self.columns = tuple(columns)

    @brief_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        exempt_modules_from_gc()
        task = current_task()
        if self.options.exactly_once:
            return self.write_in_transaction(iterator, task)
        with kept_producers.borrow(
            self.options.client, lambda: new_producer(self.options)
        ) as producer:
            self.send_rows(Sink(self.options, producer), iterator)
            producer_id, epoch = producer.identity or (-1, -1)
            return TaskCommit(
                producer_id=producer_id,
                producer_epoch=epoch,
                ranges=written_ranges(producer.flush()),
                query_id=task.query_id,
                batch_id=task.batch_id,
            )

    def send_rows(self, sink: Sink, iterator: Iterable[pa.RecordBatch]) -> None:
        try:
            for batch in iterator:
                sink.add(pa.RecordBatch.from_arrays(batch.columns, names=list(self.columns)))
            sink.send()
        except ApiError as error:
            too_large = explain_too_large(error, sink.sending)
            timed_out = explain_timed_out(error, self.options)
            raise too_large or timed_out or explain_error(error) from None

    # ---- exactly once

    def write_in_transaction(
        self, iterator: Iterator[pa.RecordBatch], task: SparkTask
    ) -> TaskCommit:
        """Write the rows in a transaction, which stays open. A task without rows begins none."""
        batches = (batch for batch in iterator if batch.num_rows)
        first = next(batches, None)
        identity = TaskTransaction("", -1, -1)
        ranges: tuple[WrittenRange, ...] = ()
        if first is not None:
            transactional_id = self.take_transactional_id(task)
            with connect(delivery_settings(self.options.client)) as cluster:
                wait_until_reachable(cluster)
                transaction = open_transaction(cluster, transactional_id, self.options)
                with aborted_on_error(transaction):
                    sink = Sink(self.options, transaction)
                    self.send_rows(sink, chain([first], batches))
                    ranges = written_ranges(transaction.flush())
                identity = transaction_identity(transaction)
        return TaskCommit(
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            ranges=ranges,
            query_id=task.query_id,
            batch_id=task.batch_id,
            run_id=task.run_id,
            transaction=identity if first is not None else None,
        )

    def take_transactional_id(self, task: SparkTask) -> str:
        raise NotImplementedError

    def end_batch(
        self,
        messages: Sequence[TaskCommit | None],
        *,
        kind: SinkKind,
        scope: str,
        batch_id: int,
        run_id: str,
        is_commit: bool,
    ) -> None:
        """Commit or abort the transactions of a batch, in the driver."""
        own = [each.transaction for each in messages if each is not None and each.transaction]
        with connect(self.options.client) as cluster:
            try:
                wait_until_reachable(cluster)
                commit = BatchCommit(
                    cluster,
                    self.options,
                    kind=kind,
                    scope=scope,
                    batch_id=batch_id,
                    run_id=run_id,
                    own=own,
                )
                if is_commit:
                    commit.commit()
                elif own or kind is SinkKind.ANONYMOUS_JOB:
                    commit.abort()
            except BarnabasError as error:
                if is_commit:
                    raise explain_error(error) if isinstance(error, ApiError) else error from None
                # Spark reports the error that caused the abort.
                logger.warning("barnabas: transactions stay open until their timeout: %s", error)


class BatchWriter(TopicWriter, DataSourceArrowWriter):  # type: ignore[misc]
    """Writer of a batch query. Spark sends the same writer to all tasks and to the commit."""

    def __init__(self, options: WriteOptions, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self.run_id = uuid4().hex
        self.kind = SinkKind.JOB if options.transactional_id else SinkKind.ANONYMOUS_JOB
        self.scope = options.transactional_id or self.run_id

    def take_transactional_id(self, task: SparkTask) -> str:
        return fresh_transactional_id(self.scope)

    @brief_errors
    def commit(self, messages: list[TaskCommit | None]) -> None:
        self.end_job(messages, is_commit=True)

    @brief_errors
    def abort(self, messages: list[TaskCommit | None]) -> None:
        self.end_job(messages, is_commit=False)

    def end_job(self, messages: Sequence[TaskCommit | None], *, is_commit: bool) -> None:
        if self.options.exactly_once:
            self.end_batch(
                messages,
                kind=self.kind,
                scope=self.scope,
                batch_id=self.options.batch_id,
                run_id=self.run_id,
                is_commit=is_commit,
            )


class StreamWriter(TopicWriter, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writer of one micro-batch of a stream."""

    def take_transactional_id(self, task: SparkTask) -> str:
        if task.query_id is None or task.batch_id is None:
            why = "Spark does not report the id of the query to its tasks; remove this option"
            raise ConfigError(EXACTLY_ONCE, why)
        return reusable_transactional_id(task.query_id, task.batch_id)

    @brief_errors
    def commit(self, messages: list[TaskCommit | None], batchId: int) -> None:  # noqa: N803
        self.end_micro_batch(messages, batchId, is_commit=True)

    @brief_errors
    def abort(self, messages: list[TaskCommit | None], batchId: int) -> None:  # noqa: N803
        self.end_micro_batch(messages, batchId, is_commit=False)

    def end_micro_batch(
        self, messages: Sequence[TaskCommit | None], batch_id: int, *, is_commit: bool
    ) -> None:
        """The id of the query is part of the checkpoint, and so the same in every run of the query."""
        first = next((message for message in messages if message is not None), None)
        if self.options.exactly_once and first is not None and first.query_id is not None:
            self.end_batch(
                messages,
                kind=SinkKind.STREAM,
                scope=first.query_id,
                batch_id=batch_id,
                run_id=first.run_id,
                is_commit=is_commit,
            )


class Sink:
    """Buffers rows and sends them, one batch per partition at a time."""

    def __init__(self, options: WriteOptions, producer: Producer) -> None:
        self.options = options
        self.producer = producer
        self.cluster = producer.cluster
        # A task sees new partitions, and that a topic is gone.
        self.cluster.forget_topics()
        self.random = Random()
        self.batch_bytes = min(
            integer_setting(options.client, "batch.size", BATCH_BYTES),
            integer_setting(options.client, "max.request.size", BATCH_BYTES),
        )
        self.buffer_bytes = min(
            BUFFER_BYTES, integer_setting(options.client, "buffer.memory", BUFFER_BYTES)
        )
        self.pending: list[pa.RecordBatch] = []
        self.pending_bytes = 0
        self.sending: dict[TopicPartition, int] = {}
        """Number of records in each batch of the last request."""

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        self.pending.append(batch)
        self.pending_bytes += batch.get_total_buffer_size()
        if self.pending_bytes >= self.buffer_bytes:
            self.send()

    def send(self) -> None:
        """Send all buffered rows. Raises ApiError, or ConfigError for a row with an invalid topic or partition."""
        if not self.pending:
            return
        table = pa.Table.from_batches(self.pending).combine_chunks()
        self.pending, self.pending_bytes = [], 0
        queues: dict[TopicPartition, Iterator[EncodedRecords]] = {
            partition: encode_records(columns, self.batch_bytes)
            for partition, columns in self.by_partition(table, now_ms())
        }
        while queues:
            batches = {}
            for partition in list(queues):
                body = next(queues[partition], None)
                if body is None:
                    del queues[partition]
                    continue
                build = body.builder(
                    self.options.compression, is_transactional=self.options.exactly_once
                )
                batches[partition] = PendingBatch(body.count, build)
            if batches:
                self.sending = {partition: batch.count for partition, batch in batches.items()}
                self.producer.send_batches(batches)

    def by_partition(self, table: pa.Table, now: int) -> Iterator[tuple[TopicPartition, Columns]]:
        for topic, rows in self.by_topic(table):
            assigned = self.assign_partitions(topic, rows)
            counts = np.bincount(assigned)
            # numpy sorts 16-bit integers much faster.
            small = assigned.astype(np.int16) if len(counts) <= INT16_MAX else assigned
            order = pa.array(np.argsort(small, kind="stable"))
            ends = np.cumsum(counts)
            for partition in np.flatnonzero(counts).tolist():
                end, count = int(ends[partition]), int(counts[partition])
                chosen = rows.take(order[end - count : end])
                yield TopicPartition(topic, partition), columns_of(chosen, now)

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

    def assign_partitions(self, topic: str, rows: pa.Table) -> PartitionNumbers:
        """Return the partition of each row: from its column `partition`, else from its key, else by `spread`."""
        view = self.topic(topic)
        count = len(view.partitions)
        names = rows.column_names
        assigned = np.full(rows.num_rows, -1, np.int64)
        if "key" in names:
            assigned = partitions_of_keys(as_binary(rows, "key"), count)
        if "partition" in names and rows.column("partition").null_count < rows.num_rows:
            named = pc.fill_null(rows.column("partition"), -1).combine_chunks()
            given = np.asarray(named.to_numpy(zero_copy_only=False), np.int64)
            is_null = np.asarray(rows.column("partition").is_null())
            wrong = given[~is_null & ((given < 0) | (given >= count))]
            if len(wrong):
                why = f"{topic} has no partition {wrong[0]}, only 0 to {count - 1}"
                raise ConfigError("column partition", why)
            assigned = np.where(is_null, assigned, given)
        unassigned = np.nonzero(assigned < 0)[0]
        if len(unassigned):
            assigned[unassigned] = self.spread(
                len(unassigned), available_partitions(view), rows.nbytes
            )
        return assigned

    def spread(self, count: int, partitions: list[int], size_bytes: int) -> PartitionNumbers:
        """Distribute rows without a key: to one random partition if they fit one batch, else to several."""
        pieces = min(len(partitions), count, 1 + size_bytes // self.batch_bytes)
        chosen = np.array(self.random.sample(partitions, pieces), np.int64)
        return chosen[np.arange(count) * pieces // count]

    def topic(self, name: str) -> TopicView:
        """Return the metadata of a topic. Network errors are retried, because the driver has reached the cluster."""
        deadline = Deadline(self.cluster.timeout_s)
        backoff = Backoff(RETRY_S, RETRY_S, random=self.cluster.random)
        while True:
            try:
                return self.cluster.topic(name)
            except ApiError as error:
                is_network_error = error.code is ErrorCode.NETWORK_EXCEPTION
                if not is_network_error or deadline.passed:
                    raise explain_unknown_topic(error, name, self.cluster, self.options) from None
            pause(backoff.next_s())


def written_ranges(batches: Iterable[SentBatch]) -> tuple[WrittenRange, ...]:
    """Merge batches with consecutive offsets into ranges, because a task may send thousands of batches."""
    done: list[WrittenRange] = []
    last: dict[TopicPartition, WrittenRange] = {}
    for partition, base_offset, count in batches:
        previous = last.get(partition)
        if previous is not None and previous.base_offset + previous.count == base_offset:
            last[partition] = replace(previous, count=previous.count + count)
            continue
        if previous is not None:
            done.append(previous)
        last[partition] = WrittenRange(
            topic=partition.topic,
            partition=partition.partition,
            base_offset=base_offset,
            count=count,
        )
    return (*done, *last.values())


def columns_of(rows: pa.Table, now: int) -> Columns:
    """Return the columns to encode. Rows without a timestamp get `now`."""
    names = rows.column_names
    return Columns(
        as_binary(rows, "key") if "key" in names else None,
        as_binary(rows, "value"),
        header_tails(one_chunk(rows, "headers")) if "headers" in names else None,
        timestamps_of(rows.column("timestamp"), now) if "timestamp" in names else now,
    )


def timestamps_of(column: pa.ChunkedArray, now: int) -> TimestampsMs | int:
    """Return the timestamps in milliseconds, rounded down. Raises ConfigError for one before 1970."""
    if column.null_count == len(column):
        return now
    microseconds = pc.fill_null(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), now * 1000)
    found: TimestampsMs = microseconds.to_numpy() // 1000
    if found.min() < 0:
        why = (
            "a timestamp is before 1970, which Kafka does not support; change it or set it to null"
        )
        raise ConfigError("column timestamp", why)
    return found


def as_binary(rows: pa.Table, name: str) -> pa.Array:
    column = one_chunk(rows, name)
    return column if pa.types.is_binary(column.type) else column.cast(pa.large_binary())


def one_chunk(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


class SparkTask(NamedTuple):
    """The current task. Query id and batch id are None unless it is part of a stream."""

    query_id: str | None = None
    batch_id: int | None = None
    run_id: str = ""
    """One run of a query or job."""


def current_task() -> SparkTask:
    context = TaskContext.get()
    if context is None:
        return SparkTask()
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    return SparkTask(
        context.getLocalProperty("sql.streaming.queryId"),
        None if batch_id is None else int(batch_id),
        # Spark uses the run id of a stream as its job group.
        context.getLocalProperty("spark.jobGroup.id") or "",
    )


def new_producer(options: WriteOptions) -> Producer:
    return Producer(
        connect(delivery_settings(options.client)),
        acks=options.acks,
        compression=options.compression,
        idempotent=options.idempotent,
    )


def delivery_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Set request.timeout.ms to delivery.timeout.ms: the client retries a call until its request timeout."""
    found = dict(settings)
    if "delivery.timeout.ms" in found:
        found["request.timeout.ms"] = found["delivery.timeout.ms"]
    return found


def check_topic_exists(options: WriteOptions, topic: str) -> None:
    """Raise ConfigError before the job if the topic does not exist."""
    with connect(options.client) as cluster:
        try:
            cluster.topic(topic)
        except ApiError as error:
            raise explain_unknown_topic(error, topic, cluster, options) from None


def explain_too_large(error: ApiError, sending: Mapping[TopicPartition, int]) -> ConfigError | None:
    """Return a ConfigError for MESSAGE_TOO_LARGE, else None.

    `sending` is that of Sink. The error message begins with the partition of the rejected batch.
    """
    if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
        return None
    message = error.message or ""
    counts = [count for found, count in sending.items() if message.startswith(f"{found}:")]
    if counts == [1]:
        hint = "a record is larger than the topic allows; raise its max.message.bytes"
        return ConfigError("max.message.bytes", f"{message}; {hint}")
    hint = "lower it, or raise max.message.bytes of the topic"
    return ConfigError("kafka.batch.size", f"{message}; {hint}")


def explain_unknown_topic(
    error: ApiError, topic: str, cluster: Cluster, options: WriteOptions
) -> Exception:
    """Return a ConfigError for an unknown or invalid topic, else the explained error."""
    if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
        option = "column topic" if options.topic is None else "topic"
        return ConfigError(option, describe_missing_topic(topic, cluster))
    return explain_error(error)
