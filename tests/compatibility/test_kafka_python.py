"""kafka-python: produce and consume round trips."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import (
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
)

from barnabas import LocalCluster
from tests.compatibility.files import Files
from tests.compatibility.sample import (
    BIG_VALUE,
    CODECS,
    SAMPLES,
    TIMESTAMP,
    TOO_BIG_VALUE,
    Sample,
)

SECONDS = 20
UNTIL_FLUSHED_MS = 10_000
"""A long linger, so that all records share one batch; the flush ends it. A batch too small to shrink when compressed
would be stored uncompressed."""

NewTopic = Callable[..., str]


def produce(servers: str, topic: str, samples: Sequence[Sample], **settings: Any) -> list[Any]:
    """Produce all samples at once; returns the metadata of each record."""
    producer = KafkaProducer(bootstrap_servers=servers, linger_ms=UNTIL_FLUSHED_MS, **settings)
    futures = [
        producer.send(
            topic,
            value=sample.value,
            key=sample.key,
            headers=list(sample.headers),
            partition=0,
            timestamp_ms=sample.timestamp,
        )
        for sample in samples
    ]
    try:
        producer.flush(SECONDS)
        return [future.get(SECONDS) for future in futures]
    finally:
        producer.close()


def values(*texts: str) -> list[Sample]:
    return [Sample(None, text.encode()) for text in texts]


MakeConsumer = Callable[..., KafkaConsumer]


@pytest.fixture
def consumer_at(servers: str) -> Iterator[MakeConsumer]:
    """Make a consumer assigned to partition 0 of a topic, with its position already set."""
    made: list[KafkaConsumer] = []

    def make(topic: str, offset: int | str = "earliest", **settings: Any) -> KafkaConsumer:
        settings = {"group_id": None, "auto_offset_reset": "none", **settings}
        consumer = KafkaConsumer(bootstrap_servers=servers, **settings)
        made.append(consumer)
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        if offset == "earliest":
            consumer.seek_to_beginning(partition)
            consumer.position(partition)
        elif offset == "latest":
            consumer.seek_to_end(partition)
            consumer.position(partition)
        else:
            consumer.seek(partition, offset)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


def take(consumer: KafkaConsumer, count: int) -> list[Any]:
    records: list[Any] = []
    while len(records) < count:
        polled = consumer.poll(timeout_ms=1000 * SECONDS, max_records=count - len(records))
        assert polled, f"{len(records)} of {count} arrived"
        for found in polled.values():
            records += found
    return records


def as_sample(record: Any) -> Sample:
    return Sample(record.key, record.value, tuple(record.headers), record.timestamp)


@pytest.mark.parametrize("codec", CODECS)
def test_records_round_trip_with_codec(
    servers: str, topic: str, files: Files, consumer_at: MakeConsumer, codec: str
) -> None:
    produce(servers, topic, SAMPLES, compression_type=None if codec == "none" else codec)
    records = take(consumer_at(topic), len(SAMPLES))
    assert [as_sample(record) for record in records] == list(SAMPLES)
    assert files.codecs(topic) == {codec}


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_produce_with_every_acks_setting(
    servers: str, topic: str, consumer_at: MakeConsumer, acks: int | str
) -> None:
    produce(servers, topic, SAMPLES, acks=acks, enable_idempotence=False)
    records = take(consumer_at(topic), len(SAMPLES))
    assert [as_sample(record) for record in records] == list(SAMPLES)


def test_idempotent_producer_sets_batch_sequences(servers: str, topic: str, files: Files) -> None:
    produce(servers, topic, values(*map(str, range(100))), batch_size=200)
    headers = [batch.header for batch in files.batches(topic)]
    assert [header.base_sequence for header in headers] == [h.base_offset for h in headers]
    assert len({header.producer_id for header in headers}) == 1
    assert headers[0].producer_id >= 0
    assert len(headers) >= 5


def test_thousands_of_records_keep_their_order(
    servers: str, topic: str, files: Files, consumer_at: MakeConsumer
) -> None:
    numbers = [str(number) for number in range(3000)]
    delivered = produce(servers, topic, values(*numbers))
    assert [metadata.offset for metadata in delivered] == list(range(3000))
    assert max(len(batch.records) for batch in files.batches(topic)) > 50
    records = take(consumer_at(topic), 3000)
    assert [record.value.decode() for record in records] == numbers


def test_record_above_max_message_bytes_is_rejected(
    servers: str, topic: str, consumer_at: MakeConsumer
) -> None:
    settings = {"max_request_size": 2_000_000}
    produce(servers, topic, [Sample(None, BIG_VALUE)], **settings)
    assert take(consumer_at(topic), 1)[0].value == BIG_VALUE
    with pytest.raises((MessageSizeTooLargeError, RecordListTooLargeError)):
        produce(servers, topic, [Sample(None, TOO_BIG_VALUE)], **settings)


def test_produce_and_consume_many_partitions(servers: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=20)
    producer = KafkaProducer(bootstrap_servers=servers)
    for number in range(200):
        producer.send(topic, str(number).encode(), partition=number % 20)
    producer.flush(SECONDS)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=None, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, index) for index in range(20)])
    records = take(consumer, 200)
    consumer.close()
    assert {int(record.value) for record in records} == set(range(200))
    assert all(int(record.value) % 20 == record.partition for record in records)


# ---- start positions


@pytest.fixture
def five_records(servers: str, topic: str) -> str:
    """A topic with values 0 to 4, one second apart."""
    produce(
        servers,
        topic,
        [Sample(None, b"%d" % number, timestamp=TIMESTAMP + 1000 * number) for number in range(5)],
    )
    return topic


def test_consume_from_offset_or_end(
    servers: str, five_records: str, consumer_at: MakeConsumer
) -> None:
    assert [record.value for record in take(consumer_at(five_records, 3), 2)] == [b"3", b"4"]
    at_end = consumer_at(five_records, "latest")
    produce(servers, five_records, values("5"))
    assert [record.value for record in take(at_end, 1)] == [b"5"]


def test_offsets_for_times(five_records: str, consumer_at: MakeConsumer) -> None:
    consumer = consumer_at(five_records)
    partition = TopicPartition(five_records, 0)

    def at(timestamp: int) -> tuple[int, int] | None:
        found = consumer.offsets_for_times({partition: timestamp})[partition]
        return None if found is None else (found.offset, found.timestamp)

    assert at(0) == (0, TIMESTAMP)
    assert at(TIMESTAMP + 2001) == (3, TIMESTAMP + 3000)
    assert at(TIMESTAMP + 4001) is None
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 5}


def test_out_of_range_offset_is_reset_or_raised(
    five_records: str, consumer_at: MakeConsumer
) -> None:
    assert take(consumer_at(five_records, 77, auto_offset_reset="earliest"), 1)[0].value == b"0"
    with pytest.raises(OffsetOutOfRangeError):
        take(consumer_at(five_records, 77, auto_offset_reset="none"), 1)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_both_isolation_levels_read_everything(
    five_records: str, consumer_at: MakeConsumer, isolation: str
) -> None:
    records = take(consumer_at(five_records, isolation_level=isolation), 5)
    assert [record.value for record in records] == [b"0", b"1", b"2", b"3", b"4"]


# ---- unknown topics


def test_producing_to_unknown_topic_creates_it(servers: str, consumer_at: MakeConsumer) -> None:
    produce(servers, "created-by-kafka-python", values("a"))
    assert take(consumer_at("created-by-kafka-python"), 1)[0].value == b"a"


def test_unknown_topic_is_not_created_when_auto_creation_is_off() -> None:
    with (
        LocalCluster(settings={"auto.create.topics.enable": "false"}) as strict,
        pytest.raises(KafkaTimeoutError),
    ):
        produce(strict.bootstrap_servers, "nowhere", values("a"), max_block_ms=1000)
