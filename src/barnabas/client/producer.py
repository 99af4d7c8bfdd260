"""A synchronous producer: records are gathered per partition and sent when enough have come together, or on `flush`.

One request per partition is under way at a time, so retries keep the order of records. With idempotence (the default
for acks=all where the cluster offers it) a retry cannot write twice either: the broker knows the batch by its sequence.

Partitions that are added to a topic are noticed when its metadata is looked at anew, which is done now and then. A key
may then go to another partition than before, as with every producer of Kafka's.

After an error nothing is known of the batches that were under way, and what was gathered is dropped: the caller knows
which records it sent since the last successful `flush`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import NamedTuple, Self

from msgspec import Struct, field

from barnabas.client.blocking import BlockingConnection, Deadline, now_ms
from barnabas.client.cluster import Cluster
from barnabas.client.core import error_of, raise_if
from barnabas.client.partitioner import Sticky, partition_of_key
from barnabas.client.view import TopicView
from barnabas.errors import ApiError, ConfigError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.wire.compression import Compression
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.wire.records import Record, build_batch

ACKS_ALL = -1
BATCH_BYTES = 512 << 10
"""Well below message.max.bytes, and large enough that a round trip per batch does not matter."""
BUFFER_BYTES = 8 << 20
RECORD_OVERHEAD = 24
METADATA_MAX_AGE_S = 300.0
SEQUENCE_MAX = 0x7FFF_FFFF

Headers = Sequence[tuple[str, bytes | None]]


class Sent(NamedTuple):
    """A batch that was acknowledged. `base_offset` is -1 where the broker did not tell it (acks=0)."""

    partition: TopicPartition
    base_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count


class Unsent(NamedTuple):
    """A batch that waits for what the producer adds to it."""

    count: int  # type: ignore[assignment]  # hides tuple.count
    build: Callable[..., bytes]
    """Takes `producer_id`, `producer_epoch` and `base_sequence`."""


class Gathered(Struct):
    """What waits for one partition: full batches, and the one being filled."""

    batches: list[list[Record]] = field(default_factory=lambda: [[]])
    last_batch_bytes: int = 0

    def add(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers, size: int
    ) -> bool:
        """True if this began another batch."""
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
        self.sticky = Sticky(random or Random())
        self.gathered: dict[TopicPartition, Gathered] = {}
        self.gathered_bytes = 0
        self.sent: list[Sent] = []
        self.identity: tuple[int, int] | None = None
        self.sequences: dict[TopicPartition, int] = {}
        self.metadata_max_age_s = metadata_max_age_s
        self.next_look = Deadline(metadata_max_age_s)

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
        """Gather one record; where it will go. Sends everything gathered when the buffer is full."""
        target = self.target(topic, key, partition)
        size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        for name, content in headers:
            size += len(name) + len(content or b"") + 4
        gathered = self.gathered.get(target)
        if gathered is None:
            gathered = self.gathered[target] = Gathered()
        at = now_ms() if timestamp is None else timestamp
        began_another = gathered.add(at, key, value, headers, size)
        if began_another and key is None and partition is None:
            self.sticky.move_on(topic, available(self.cluster.topic(topic)))
        self.gathered_bytes += size
        if self.gathered_bytes >= BUFFER_BYTES:
            self.send_gathered()
        return target

    def target(self, topic: str, key: bytes | None, partition: int | None) -> TopicPartition:
        view = self.cluster.topic(topic)
        if partition is not None:
            wanted = TopicPartition(topic, partition)
            if all(found.partition != partition for found in view.partitions):
                self.cluster.refresh([topic]).partition(wanted)  # it may have been added since
            return wanted
        if key is not None:
            return TopicPartition(topic, partition_of_key(key, len(view.partitions)))
        return TopicPartition(topic, self.sticky.choose(topic, lambda: available(view)))

    def flush(self) -> list[Sent]:
        """Send what is gathered; all batches acknowledged since the last flush."""
        self.send_gathered()
        sent, self.sent = self.sent, []
        return sent

    def send_gathered(self) -> None:
        gathered, self.gathered, self.gathered_bytes = self.gathered, {}, 0
        topics = sorted({partition.topic for partition in gathered})
        if topics and self.next_look.passed:
            self.look_again(topics)
        for topic in topics:
            self.sticky.move_on(topic, available(self.cluster.topic(topic)))
        queues = {partition: list(waiting.batches) for partition, waiting in gathered.items()}
        while queues:
            self.send_round({partition: queue.pop(0) for partition, queue in queues.items()})
            queues = {partition: queue for partition, queue in queues.items() if queue}

    def look_again(self, topics: list[str]) -> None:
        """Who cannot be asked now is asked again when the records are sent, and then it is an error."""
        self.next_look = Deadline(self.metadata_max_age_s)
        with suppress(ApiError):
            self.cluster.refresh(topics)

    def send_round(self, batches: dict[TopicPartition, list[Record]]) -> None:
        """One batch for each partition."""
        self.send_batches(
            {
                partition: Unsent(
                    len(records), partial(build_batch, records, compression=self.compression)
                )
                for partition, records in batches.items()
            }
        )

    def send_batches(self, batches: Mapping[TopicPartition, Unsent]) -> None:
        """One batch for each partition. They are built once: a retry sends the same bytes, with the same sequence."""
        producer_id, epoch = self.identify()
        data = {
            partition: batch.build(
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=self.sequences.get(partition, 0) if producer_id >= 0 else -1,
            )
            for partition, batch in batches.items()
        }

        def ask(
            connection: BlockingConnection, led: list[TopicPartition]
        ) -> Iterator[tuple[TopicPartition, int | ApiError]]:
            return self.produce(connection, {partition: data[partition] for partition in led})

        offsets = self.cluster.ask_leaders(data, ask)
        for partition, batch in batches.items():
            if producer_id >= 0:
                following = self.sequences.get(partition, 0) + batch.count
                self.sequences[partition] = following % (SEQUENCE_MAX + 1)
            self.sent.append(Sent(partition, offsets[partition], batch.count))

    def produce(
        self, connection: BlockingConnection, batches: dict[TopicPartition, bytes]
    ) -> Iterator[tuple[TopicPartition, int | ApiError]]:
        by_topic: dict[str, list[PartitionProduceData]] = {}
        for partition, batch in batches.items():
            data = PartitionProduceData(index=partition.partition, records=batch)
            by_topic.setdefault(partition.topic, []).append(data)
        request = ProduceRequest(
            acks=self.acks,
            timeout_ms=int(self.cluster.timeout_s * 900),
            topic_data=tuple(
                TopicProduceData(name=name, partition_data=tuple(partitions))
                for name, partitions in by_topic.items()
            ),
        )
        timeout_s = self.cluster.timeout_s
        if self.acks == 0:
            connection.begin(request, None, timeout_s=timeout_s)
            yield from dict.fromkeys(batches, -1).items()
            return
        response = connection.exchange(request, ProduceResponse, timeout_s=timeout_s)
        for topic in response.responses:
            for result in topic.partition_responses:
                partition = TopicPartition(topic.name, result.index)
                # The broker has this batch already, from an attempt whose answer was lost.
                if result.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    yield partition, -1
                    continue
                message = f"{partition}: {result.error_message or 'refused by the leader'}"
                yield partition, error_of(result.error_code, message) or result.base_offset

    def identify(self) -> tuple[int, int]:
        """Producer id and epoch, or -1, -1 without idempotence."""
        if self.identity is None:
            wanted = self.idempotent
            if wanted is None:
                offered = self.cluster.any_connection().supports(InitProducerIdRequest)
                wanted = self.acks == ACKS_ALL and offered
            self.identity = self.init_producer_id() if wanted else (-1, -1)
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


def available(topic: TopicView) -> list[int]:
    """Partitions that can be written to now; all of them if none can, for the retries to wait on."""
    led = [found.partition for found in topic.partitions if not found.is_offline]
    return led or [found.partition for found in topic.partitions]
