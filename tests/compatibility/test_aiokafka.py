"""aiokafka: produce and consume round trips, and the admin client."""

from collections.abc import AsyncIterator, Callable, Sequence
from itertools import count
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)

from barnabas import LocalCluster
from barnabas.errors import ErrorCode
from tests.compatibility.files import Files
from tests.compatibility.sample import (
    BIG_VALUE,
    CODECS,
    SAMPLES,
    TIMESTAMP,
    TOO_BIG_VALUE,
    Sample,
)

MILLISECONDS = 20_000
NUMBERS = count()


async def produce(
    servers: str, topic: str, samples: Sequence[Sample], **settings: Any
) -> list[Any]:
    """Produce all samples at once; returns the metadata of each record."""
    async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=20, **settings) as producer:
        futures = [
            await producer.send(
                topic,
                value=sample.value,
                key=sample.key,
                headers=list(sample.headers),
                partition=0,
                timestamp_ms=sample.timestamp,
            )
            for sample in samples
        ]
        return [await future for future in futures]


def values(*texts: str) -> list[Sample]:
    return [Sample(None, text.encode()) for text in texts]


async def consumer_at(
    servers: str, topic: str, offset: int | str = "earliest", **settings: Any
) -> AIOKafkaConsumer:
    """A consumer assigned to partition 0 of this topic, with its position already set."""
    settings = {"auto_offset_reset": "none", **settings}
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, **settings)
    await consumer.start()
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    if offset == "earliest":
        await consumer.seek_to_beginning(partition)
    elif offset == "latest":
        await consumer.seek_to_end(partition)
    else:
        consumer.seek(partition, offset)
    return consumer


async def take(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    """Read this many records, then stop the consumer."""
    records: list[Any] = []
    try:
        while len(records) < count:
            polled = await consumer.getmany(
                timeout_ms=MILLISECONDS, max_records=count - len(records)
            )
            assert polled, f"{len(records)} of {count} arrived"
            for found in polled.values():
                records += found
    finally:
        await consumer.stop()
    return records


def as_sample(record: Any) -> Sample:
    return Sample(record.key, record.value, tuple(record.headers), record.timestamp)


@pytest.mark.parametrize("codec", CODECS)
async def test_records_round_trip_with_codec(
    servers: str, topic: str, files: Files, codec: str
) -> None:
    await produce(servers, topic, SAMPLES, compression_type=None if codec == "none" else codec)
    records = await take(await consumer_at(servers, topic), len(SAMPLES))
    assert [as_sample(record) for record in records] == list(SAMPLES)
    assert files.codecs(topic) == {codec}


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_produce_with_every_acks_setting(servers: str, topic: str, acks: int | str) -> None:
    await produce(servers, topic, SAMPLES, acks=acks)
    records = await take(await consumer_at(servers, topic), len(SAMPLES))
    assert [as_sample(record) for record in records] == list(SAMPLES)


async def test_idempotent_producer_sets_batch_sequences(
    servers: str, topic: str, files: Files
) -> None:
    samples = values(*map(str, range(100)))
    await produce(servers, topic, samples, enable_idempotence=True, max_batch_size=200)
    headers = [batch.header for batch in files.batches(topic)]
    assert [header.base_sequence for header in headers] == [h.base_offset for h in headers]
    assert len({header.producer_id for header in headers}) == 1
    assert headers[0].producer_id >= 0
    assert len(headers) >= 5


async def test_thousands_of_records_keep_their_order(servers: str, topic: str) -> None:
    numbers = [str(number) for number in range(3000)]
    delivered = await produce(servers, topic, values(*numbers))
    assert [metadata.offset for metadata in delivered] == list(range(3000))
    records = await take(await consumer_at(servers, topic), 3000)
    assert [record.value.decode() for record in records] == numbers


async def test_record_above_max_message_bytes_is_rejected(servers: str, topic: str) -> None:
    settings = {"max_request_size": 2_000_000}
    await produce(servers, topic, [Sample(None, BIG_VALUE)], **settings)
    (record,) = await take(await consumer_at(servers, topic), 1)
    assert record.value == BIG_VALUE
    with pytest.raises(MessageSizeTooLargeError):
        await produce(servers, topic, [Sample(None, TOO_BIG_VALUE)], **settings)


async def test_produce_and_consume_many_partitions(
    servers: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=20)
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(200):
            await producer.send(topic, str(number).encode(), partition=number % 20)
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([TopicPartition(topic, index) for index in range(20)])
    records = await take(consumer, 200)
    assert {int(record.value) for record in records} == set(range(200))
    assert all(int(record.value) % 20 == record.partition for record in records)


# ---- start positions


async def produce_five(servers: str, topic: str) -> str:
    """Produce values 0 to 4, one second apart."""
    samples = [
        Sample(None, b"%d" % number, timestamp=TIMESTAMP + 1000 * number) for number in range(5)
    ]
    await produce(servers, topic, samples)
    return topic


async def test_consume_from_offset_or_end(servers: str, topic: str) -> None:
    await produce_five(servers, topic)
    records = await take(await consumer_at(servers, topic, 3), 2)
    assert [record.value for record in records] == [b"3", b"4"]
    at_end = await consumer_at(servers, topic, "latest")
    await produce(servers, topic, values("5"))
    assert [record.value for record in await take(at_end, 1)] == [b"5"]


async def test_offsets_for_times(servers: str, topic: str) -> None:
    await produce_five(servers, topic)
    consumer = await consumer_at(servers, topic)
    partition = TopicPartition(topic, 0)

    async def at(timestamp: int) -> tuple[int, int] | None:
        found = (await consumer.offsets_for_times({partition: timestamp}))[partition]
        return None if found is None else (found.offset, found.timestamp)

    assert await at(0) == (0, TIMESTAMP)
    assert await at(TIMESTAMP + 2001) == (3, TIMESTAMP + 3000)
    assert await at(TIMESTAMP + 4001) is None
    assert await consumer.beginning_offsets([partition]) == {partition: 0}
    assert await consumer.end_offsets([partition]) == {partition: 5}
    await consumer.stop()


async def test_out_of_range_offset_is_reset_or_raised(servers: str, topic: str) -> None:
    await produce_five(servers, topic)
    reset = await consumer_at(servers, topic, 77, auto_offset_reset="earliest")
    assert (await take(reset, 1))[0].value == b"0"
    with pytest.raises(OffsetOutOfRangeError):
        await take(await consumer_at(servers, topic, 77), 1)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_both_isolation_levels_read_everything(
    servers: str, topic: str, isolation: str
) -> None:
    await produce_five(servers, topic)
    records = await take(await consumer_at(servers, topic, isolation_level=isolation), 5)
    assert [record.value for record in records] == [b"0", b"1", b"2", b"3", b"4"]


# ---- unknown topics


async def test_producing_to_unknown_topic_creates_it(servers: str) -> None:
    await produce(servers, "created-by-aiokafka", values("a"))
    (record,) = await take(await consumer_at(servers, "created-by-aiokafka"), 1)
    assert record.value == b"a"


async def test_unknown_topic_is_not_created_when_auto_creation_is_off() -> None:
    with (
        LocalCluster(settings={"auto.create.topics.enable": "false"}) as strict,
        pytest.raises((UnknownTopicOrPartitionError, KafkaTimeoutError)),
    ):
        await produce(strict.bootstrap_servers, "nowhere", values("a"), request_timeout_ms=1000)


# ---- administration


@pytest.fixture
async def admin(servers: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=servers)
    await client.start()
    yield client
    await client.close()


def error_code(response: Any) -> int:
    code: int = response.topic_errors[0][1]
    return code


async def test_topic_is_created_described_and_deleted(admin: AIOKafkaAdminClient) -> None:
    name = f"aiokafka-{next(NUMBERS)}"
    await admin.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "1000"})])
    (described,) = await admin.describe_topics([name])
    assert [partition["leader"] for partition in described["partitions"]] == [1, 1]
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
    entries = {entry[0]: entry[1] for entry in answer.resources[0][4]}
    assert entries["retention.ms"] == "1000"
    assert name in await admin.list_topics()
    await admin.delete_topics([name])
    assert name not in await admin.list_topics()


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (NewTopic("bad name", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("replicas", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("config", 1, 1, topic_configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
    ],
    ids=["bad name", "replicas", "config"],
)
async def test_invalid_topic_creation_returns_error_code(
    admin: AIOKafkaAdminClient, topic: NewTopic, expected: ErrorCode
) -> None:
    assert error_code(await admin.create_topics([topic])) == expected


async def test_existing_topic_is_not_created_again(admin: AIOKafkaAdminClient, topic: str) -> None:
    answer = await admin.create_topics([NewTopic(topic, 1, 1)])
    assert error_code(answer) == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_describe_cluster(admin: AIOKafkaAdminClient, servers: str) -> None:
    described = await admin.describe_cluster()
    (broker,) = described["brokers"]
    assert f"{broker['host']}:{broker['port']}" == servers
    assert described["controller_id"] == broker["node_id"] == 1


async def test_records_are_deleted(admin: AIOKafkaAdminClient, servers: str, topic: str) -> None:
    await produce_five(servers, topic)
    partition = TopicPartition(topic, 0)
    deleted = await admin.delete_records({partition: RecordsToDelete(before_offset=3)})
    assert deleted == {partition: 3}
    with pytest.raises(OffsetOutOfRangeError):
        await admin.delete_records({partition: RecordsToDelete(before_offset=77)})
    assert (await take(await consumer_at(servers, topic), 2))[0].offset == 3
