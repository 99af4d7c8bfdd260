"""confluent-kafka (librdkafka): produce and consume round trips."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
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


def produce(servers: str, topic: str, samples: Sequence[Sample], **settings: Any) -> list[Message]:
    """Produce all samples at once; returns the delivered messages."""
    delivered: list[Message] = []
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)
        else:
            delivered.append(message)

    producer = Producer({"bootstrap.servers": servers, "linger.ms": UNTIL_FLUSHED_MS, **settings})
    for sample in samples:
        producer.produce(
            topic,
            sample.value,
            sample.key,
            partition=0,
            timestamp=sample.timestamp,
            headers=list(sample.headers),
            on_delivery=on_delivery,
        )
    assert producer.flush(SECONDS) == 0
    if failed:
        raise KafkaException(failed[0])
    return delivered


def values(*texts: str) -> list[Sample]:
    return [Sample(None, text.encode()) for text in texts]


@pytest.fixture
def consumer(servers: str) -> Iterator[Consumer]:
    made = Consumer(consumer_settings(servers))
    yield made
    made.close()


def consumer_settings(servers: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers,
        "group.id": "unused",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 100,
        **more,
    }


def assign(consumer: Consumer, *partitions: TopicPartition) -> None:
    """Fetch the leaders first. If librdkafka looks up an offset without a known leader, it retries only after half a
    second."""
    for topic in {partition.topic for partition in partitions}:
        consumer.list_topics(topic, SECONDS)
    consumer.assign(list(partitions))


def take(consumer: Consumer, count: int) -> list[Message]:
    messages: list[Message] = consumer.consume(count, SECONDS)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    assert len(messages) == count
    return messages


def as_sample(message: Message) -> Sample:
    return Sample(
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
    )


@pytest.mark.parametrize("codec", CODECS)
def test_records_round_trip_with_codec(
    servers: str, topic: str, files: Files, consumer: Consumer, codec: str
) -> None:
    produce(servers, topic, SAMPLES, **{"compression.type": codec})
    assign(consumer, TopicPartition(topic, 0, OFFSET_BEGINNING))
    assert [as_sample(message) for message in take(consumer, len(SAMPLES))] == list(SAMPLES)
    assert files.codecs(topic) == {codec}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_produce_with_every_acks_setting(
    servers: str, topic: str, consumer: Consumer, acks: str
) -> None:
    produce(servers, topic, SAMPLES, acks=acks)
    assign(consumer, TopicPartition(topic, 0, OFFSET_BEGINNING))
    assert [as_sample(message) for message in take(consumer, len(SAMPLES))] == list(SAMPLES)


def test_idempotent_producer_sets_batch_sequences(servers: str, topic: str, files: Files) -> None:
    settings = {"enable.idempotence": True, "batch.num.messages": 10}
    produce(servers, topic, values(*map(str, range(100))), **settings)
    headers = [batch.header for batch in files.batches(topic)]
    assert [header.base_sequence for header in headers] == [h.base_offset for h in headers]
    assert len({header.producer_id for header in headers}) == 1
    assert headers[0].producer_id >= 0
    assert len(headers) >= 10


def test_ten_thousand_records_keep_their_order(
    servers: str, topic: str, consumer: Consumer, files: Files
) -> None:
    numbers = [str(number) for number in range(10_000)]
    delivered = produce(servers, topic, values(*numbers), **{"compression.type": "lz4"})
    assert [message.offset() for message in delivered] == list(range(10_000))
    assert max(len(batch.records) for batch in files.batches(topic)) > 100
    assign(consumer, TopicPartition(topic, 0, OFFSET_BEGINNING))
    assert [message.value().decode() for message in take(consumer, 10_000)] == numbers


def test_record_above_max_message_bytes_is_rejected(
    servers: str, topic: str, consumer: Consumer
) -> None:
    settings = {"message.max.bytes": 2_000_000}
    produce(servers, topic, [Sample(None, BIG_VALUE)], **settings)
    assign(consumer, TopicPartition(topic, 0, OFFSET_BEGINNING))
    assert take(consumer, 1)[0].value() == BIG_VALUE
    with pytest.raises(KafkaException) as refusal:
        produce(servers, topic, [Sample(None, TOO_BIG_VALUE)], **settings)
    assert refusal.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_produce_and_consume_many_partitions(
    servers: str, new_topic: NewTopic, consumer: Consumer
) -> None:
    topic = new_topic(partitions=50)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(500):
        producer.produce(topic, str(number), partition=number % 50)
    assert producer.flush(SECONDS) == 0
    assign(consumer, *(TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(50)))
    messages = take(consumer, 500)
    assert {int(message.value()) for message in messages} == set(range(500))
    assert all(int(message.value()) % 50 == message.partition() for message in messages)


def test_log_append_time_topic_gets_broker_timestamps(
    servers: str, new_topic: NewTopic, topic: str, consumer: Consumer
) -> None:
    stamped = new_topic(**{"message.timestamp.type": "LogAppendTime"})
    (delivered,) = produce(servers, stamped, [Sample(None, b"x", timestamp=1_000)])
    produce(servers, topic, [Sample(None, b"x", timestamp=1_000)])
    assign(consumer, TopicPartition(stamped, 0, OFFSET_BEGINNING))
    kind, timestamp = take(consumer, 1)[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert timestamp > TIMESTAMP
    assert delivered.timestamp() == (TIMESTAMP_LOG_APPEND_TIME, timestamp)
    assign(consumer, TopicPartition(topic, 0, OFFSET_BEGINNING))
    assert take(consumer, 1)[0].timestamp() == (TIMESTAMP_CREATE_TIME, 1_000)


# ---- start positions


@pytest.fixture
def five_records(servers: str, topic: str) -> str:
    """A topic with values 0 to 4, one second apart."""
    samples = [
        Sample(None, str(number).encode(), timestamp=TIMESTAMP + 1000 * number)
        for number in range(5)
    ]
    for sample in samples:
        produce(servers, topic, [sample])
    return topic


def first_new_value(servers: str, topic: str, consumer: Consumer) -> bytes:
    """The first value that a consumer at the end receives. It does not report when it has found the end, so this
    keeps producing."""
    for number in range(5, 105):
        produce(servers, topic, values(str(number)))
        message = consumer.poll(0.2)
        if message is not None:
            value: bytes = message.value()
            return value
    raise AssertionError("nothing arrived")


def test_consume_from_offset_or_end(servers: str, five_records: str, consumer: Consumer) -> None:
    assign(consumer, TopicPartition(five_records, 0, 3))
    assert [message.value() for message in take(consumer, 2)] == [b"3", b"4"]
    assign(consumer, TopicPartition(five_records, 0, OFFSET_END))
    assert int(first_new_value(servers, five_records, consumer)) >= 5


def test_offsets_for_times(five_records: str, consumer: Consumer) -> None:
    def at(timestamp: int) -> int:
        wanted = [TopicPartition(five_records, 0, timestamp)]
        offset: int = consumer.offsets_for_times(wanted, timeout=SECONDS)[0].offset
        return offset

    assert at(0) == 0
    assert at(TIMESTAMP + 2000) == 2
    assert at(TIMESTAMP + 2001) == 3
    assert at(TIMESTAMP + 4001) == OFFSET_END
    assert consumer.get_watermark_offsets(TopicPartition(five_records, 0), SECONDS) == (0, 5)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_out_of_range_offset_is_reset(servers: str, five_records: str, reset: str) -> None:
    consumer = Consumer(consumer_settings(servers, **{"auto.offset.reset": reset}))
    assign(consumer, TopicPartition(five_records, 0, 77))
    if reset == "earliest":
        assert take(consumer, 1)[0].value() == b"0"
    else:
        assert int(first_new_value(servers, five_records, consumer)) >= 5
    consumer.close()


def test_out_of_range_offset_is_error_without_reset_policy(
    five_records: str, consumer: Consumer
) -> None:
    assign(consumer, TopicPartition(five_records, 0, 77))
    message = consumer.poll(SECONDS)
    assert message is not None
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_both_isolation_levels_read_everything(
    servers: str, five_records: str, isolation: str
) -> None:
    consumer = Consumer(consumer_settings(servers, **{"isolation.level": isolation}))
    assign(consumer, TopicPartition(five_records, 0, OFFSET_BEGINNING))
    assert [message.value() for message in take(consumer, 5)] == [b"0", b"1", b"2", b"3", b"4"]
    assert consumer.get_watermark_offsets(TopicPartition(five_records, 0), SECONDS) == (0, 5)
    consumer.close()


# ---- unknown topics


def test_producing_to_unknown_topic_creates_it(servers: str, consumer: Consumer) -> None:
    produce(servers, "created-by-librdkafka", values("a"))
    assign(consumer, TopicPartition("created-by-librdkafka", 0, OFFSET_BEGINNING))
    assert take(consumer, 1)[0].value() == b"a"


def test_unknown_topic_is_not_created_when_auto_creation_is_off() -> None:
    with LocalCluster(settings={"auto.create.topics.enable": "false"}) as strict:
        settings = {"topic.metadata.propagation.max.ms": 100, "message.timeout.ms": 15_000}
        with pytest.raises(KafkaException) as refusal:
            produce(strict.bootstrap_servers, "nowhere", values("a"), **settings)
    assert refusal.value.args[0].code() in (
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    )
