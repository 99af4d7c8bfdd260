"""A synchronous producer. It buffers records per partition and sends them when the buffer is full, or on `flush`.

One batch per partition is in flight at a time, so retries keep the order of records. With idempotence, a retry cannot
write a batch twice. Idempotence is the default for acks=all if the cluster supports it.

The producer refreshes the metadata of its topics every METADATA_MAX_AGE_S seconds and then uses new partitions. A key
may map to another partition from then on, as with Kafka's producer.

An error of one partition does not stop the others. After it, the buffered records are dropped. `sent` has the batches
that were acknowledged; the state of the others is unknown. A caller that does not read `sent` must resend the records
since the last successful `flush`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import NamedTuple, Self

from msgspec import Struct, field

from barnabas.batch.compression import Compression
from barnabas.batch.records import Record, build_batch
from barnabas.client.blocking import BlockingConnection, Deadline, now_ms
from barnabas.client.cluster import Cluster
from barnabas.client.core import build_topics, error_of, raise_if
from barnabas.client.partitioner import StickyPartitioner, partition_of_key
from barnabas.client.view import TopicView
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

ACKS_ALL = -1
BATCH_BYTES = 512 << 10
"""Maximum size of a batch. Well below the default of message.max.bytes; larger batches are hardly faster."""
BUFFER_BYTES = 8 << 20
RECORD_OVERHEAD = 24
"""Estimated bytes of a record besides key, value and headers."""
METADATA_MAX_AGE_S = 300.0
SEQUENCE_MAX = 0x7FFF_FFFF

Headers = Sequence[tuple[str, bytes | None]]


class SentBatch(NamedTuple):
    """A batch that was acknowledged, or sent with acks=0. `base_offset` is -1 for acks=0 and for a duplicate batch."""

    partition: TopicPartition
    base_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count


class PendingBatch(NamedTuple):
    """A batch to send. `build` encodes it, once producer id, epoch and sequence are known."""

    count: int  # type: ignore[assignment]  # hides tuple.count
    build: Callable[..., bytes]
    """Called with `producer_id`, `producer_epoch` and `base_sequence`."""


class RecordBuffer(Struct):
    """The buffered records of one partition: full batches, and the one being filled."""

    batches: list[list[Record]] = field(default_factory=lambda: [[]])
    last_batch_bytes: int = 0

    def add(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers, size: int
    ) -> bool:
        """Add a record. Returns whether it started a new batch."""
        batch = self.batches[-1]
        full = bool(batch) and self.last_batch_bytes + size > BATCH_BYTES
        if full:
            batch = []
            self.batches.append(batch)
            self.last_batch_bytes = 0
        batch.append(Record(len(batch), timestamp, key, value, tuple(headers)))
        self.last_batch_bytes += size
        return full


class Producer:
    """Producer of a cluster. `acks` is -1 (all), 1 or 0. A context manager, which flushes on exit without an exception.

    `idempotent=None` enables idempotence if acks is -1 and the cluster supports it.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = ACKS_ALL,
        compression: Compression = Compression.NONE,
        idempotent: bool | None = None,
        random: Random | None = None,
        metadata_max_age_s: float = METADATA_MAX_AGE_S,
    ) -> None:
        if acks not in (ACKS_ALL, 0, 1):
            raise ConfigError("acks", f"{acks} is not one of all, 1, 0")
        if idempotent and acks != ACKS_ALL:
            raise ConfigError("enable.idempotence", "needs acks=all")
        self.cluster = cluster
        self.acks = acks
        self.compression = compression
        self.idempotent = idempotent
        self.transactional_id: str | None = None
        self.sticky = StickyPartitioner(random or Random())
        self.buffers: dict[TopicPartition, RecordBuffer] = {}
        self.buffered_bytes = 0
        self.sent: list[SentBatch] = []
        self.identity: tuple[int, int] | None = None
        """Producer id and epoch."""
        self.sequences: dict[TopicPartition, int] = {}
        self.metadata_max_age_s = metadata_max_age_s
        self.next_refresh = Deadline(metadata_max_age_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.flush()

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> TopicPartition:
        """Buffer a record and return its partition. Sends all buffered records if the buffer is full.

        `timestamp` is in milliseconds; None means now. Raises ApiError.
        """
        target = self.add(
            topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
        )
        if self.is_full:
            self.send_buffers()
        return target

    def add(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> TopicPartition:
        """Buffer a record like `send`, but do not send the buffer. The caller must do so when it `is_full`."""
        target = self.target(topic, key, partition)
        size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        for name, content in headers:
            size += len(name) + len(content or b"") + 4
        buffer = self.buffers.get(target)
        if buffer is None:
            buffer = self.buffers[target] = RecordBuffer()
        timestamp = now_ms() if timestamp is None else timestamp
        is_new_batch = buffer.add(timestamp, key, value, headers, size)
        if is_new_batch and key is None and partition is None:
            self.sticky.switch(topic, available_partitions(self.cluster.topic(topic)))
        self.buffered_bytes += size
        return target

    @property
    def is_full(self) -> bool:
        return self.buffered_bytes >= BUFFER_BYTES

    def target(self, topic: str, key: bytes | None, partition: int | None) -> TopicPartition:
        """Return the partition for a record: the given one, that of its key, or the current sticky one."""
        view = self.cluster.topic(topic)
        if partition is not None:
            wanted = TopicPartition(topic, partition)
            if all(found.partition != partition for found in view.partitions):
                self.cluster.refresh([topic]).partition(wanted)  # raises if it still does not exist
            return wanted
        if key is not None:
            return TopicPartition(topic, partition_of_key(key, len(view.partitions)))
        return TopicPartition(topic, self.sticky.choose(topic, lambda: available_partitions(view)))

    def flush(self) -> list[SentBatch]:
        """Send all buffered records. Returns the batches sent since the last flush."""
        self.send_buffers()
        sent, self.sent = self.sent, []
        return sent

    def send_buffers(self) -> None:
        """Send all buffered records. After an error, the other partitions are still sent; then it is raised."""
        buffers, self.buffers, self.buffered_bytes = self.buffers, {}, 0
        topics = sorted({partition.topic for partition in buffers})
        if topics and self.next_refresh.passed:
            self.refresh_metadata(topics)
        for topic in topics:
            self.sticky.switch(topic, available_partitions(self.cluster.topic(topic)))
        queues = {partition: list(buffer.batches) for partition, buffer in buffers.items()}
        failure: ApiError | None = None
        while queues:
            sent_before = len(self.sent)
            try:
                self.send_batches(
                    {
                        partition: self.pending_batch(queue.pop(0))
                        for partition, queue in queues.items()
                    }
                )
            except ApiError as error:
                failure = failure or error
            acknowledged = {batch.partition for batch in self.sent[sent_before:]}
            queues = {
                each: queue for each, queue in queues.items() if queue and each in acknowledged
            }
        if failure is not None:
            raise failure

    def refresh_metadata(self, topics: list[str]) -> None:
        """Refresh the metadata of the topics. Errors are ignored: sending the records would raise them again."""
        self.next_refresh = Deadline(self.metadata_max_age_s)
        with suppress(ApiError):
            self.cluster.refresh(topics)

    def pending_batch(self, records: list[Record]) -> PendingBatch:
        build = partial(build_batch, records, compression=self.compression)
        return PendingBatch(len(records), build)

    def send_batches(self, batches: Mapping[TopicPartition, PendingBatch]) -> None:
        """Send one batch to each partition, with retries. A retry sends the same bytes with the same sequence.

        Raises ApiError if a partition fails, after the others are done. `sent` gets the acknowledged batches.
        """
        producer_id, epoch = self.ensure_identity()
        data = {
            partition: batch.build(
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=self.sequences.get(partition, 0) if producer_id >= 0 else -1,
            )
            for partition, batch in batches.items()
        }

        rejections: list[ApiError] = []

        def ask(
            connection: BlockingConnection, led: list[TopicPartition]
        ) -> Iterator[tuple[TopicPartition, bool | ApiError]]:
            for partition, answer in self.produce(connection, {each: data[each] for each in led}):
                if not isinstance(answer, ApiError):
                    self.acknowledge(SentBatch(partition, answer, batches[partition].count))
                    yield partition, True
                elif answer.code.retriable:
                    yield partition, answer
                else:
                    rejections.append(answer)
                    yield partition, False

        self.cluster.ask_leaders(data, ask)
        if rejections:
            raise rejections[0]

    def acknowledge(self, batch: SentBatch) -> None:
        self.sent.append(batch)
        if self.identity is not None and self.identity[0] >= 0:
            next_sequence = self.sequences.get(batch.partition, 0) + batch.count
            self.sequences[batch.partition] = next_sequence % (SEQUENCE_MAX + 1)

    def produce(
        self, connection: BlockingConnection, batches: dict[TopicPartition, bytes]
    ) -> Iterator[tuple[TopicPartition, int | ApiError]]:
        """Send one Produce request. Yields the base offset (-1 if unknown) or the error of each partition."""
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=self.acks,
            timeout_ms=self.cluster.broker_timeout_ms,
            topic_data=build_topics(
                TopicProduceData,
                {
                    each: PartitionProduceData(each.partition, data)
                    for each, data in batches.items()
                },
            ),
        )
        timeout_s = self.cluster.timeout_s
        if self.acks == 0:
            connection.send(request, None, timeout_s=timeout_s)
            yield from dict.fromkeys(batches, -1).items()
            return
        response = connection.exchange(request, ProduceResponse, timeout_s=timeout_s)
        for topic in response.responses:
            for result in topic.partition_responses:
                partition = TopicPartition(topic.name, result.index)
                if result.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    # An earlier attempt wrote the batch, but its response was lost.
                    yield partition, -1
                    continue
                message = f"{partition}: {result.error_message or 'rejected by the leader'}"
                yield partition, error_of(result.error_code, message) or result.base_offset

    def ensure_identity(self) -> tuple[int, int]:
        """Return the producer id and epoch, or (-1, -1) without idempotence. Fetches them on the first call."""
        if self.identity is None:
            idempotent = self.idempotent
            if idempotent is None:
                is_supported = self.cluster.any_connection().supports(InitProducerIdRequest)
                idempotent = self.acks == ACKS_ALL and is_supported
            self.identity = self.init_producer_id() if idempotent else (-1, -1)
        return self.identity

    def init_producer_id(self) -> tuple[int, int]:
        def attempt() -> tuple[int, int]:
            response = self.cluster.any_connection().exchange(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
                InitProducerIdResponse,
                timeout_s=self.cluster.timeout_s,
            )
            raise_if(response.error_code, "InitProducerId")
            return response.producer_id, response.producer_epoch

        return self.cluster.retry(attempt)


def available_partitions(topic: TopicView) -> list[int]:
    """Return the partitions with a leader, or all partitions if none has one."""
    led = [found.partition for found in topic.partitions if not found.is_offline]
    return led or [found.partition for found in topic.partitions]
