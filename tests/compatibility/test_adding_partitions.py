"""Partitions added with every client that supports it, and clients that discover the new partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aiokafka.errors
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AIONewPartitions
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import InvalidPartitionsError

from support.waiting import eventually
from tests import tools
from tests.compatibility.kafkajs_client import KafkaJsError, ask
from tests.compatibility.optional import require
from tests.compatibility.raw import Raw

NewTopic = Callable[..., str]
SECONDS = 20
SOON = {"topic.metadata.refresh.interval.ms": 100}


def expand(servers: str, topic: str, total: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(SECONDS)


def test_confluent_kafka_adds_partitions(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})

    def grow(request: NewPartitions, **options: Any) -> None:
        admin.create_partitions([request], **options)[topic].result(SECONDS)

    grow(NewPartitions(topic, 2))
    grow(NewPartitions(topic, 4, replica_assignment=[[1], [1]]))
    grow(NewPartitions(topic, 9), validate_only=True)
    assert len(admin.list_topics(topic, SECONDS).topics[topic].partitions) == 4
    for request, code in (
        (NewPartitions(topic, 4), KafkaError.INVALID_PARTITIONS),
        (NewPartitions(topic, 5, replica_assignment=[[9]]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
    ):
        with pytest.raises(KafkaException) as refusal:
            grow(request)
        assert refusal.value.args[0].code() == code


def test_kafka_python_adds_partitions(servers: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.create_partitions({topic: 3})
        (described,) = admin.describe_topics([topic])
        assert len(described["partitions"]) == 3
        with pytest.raises(InvalidPartitionsError):
            admin.create_partitions({topic: 2})
    finally:
        admin.close()


async def test_aiokafka_adds_partitions(servers: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        requests = {topic: AIONewPartitions(total_count=3, new_assignments=[[1], [1]])}
        await admin.create_partitions(requests)
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 3
        with pytest.raises(aiokafka.errors.InvalidPartitionsError):
            await admin.create_partitions({topic: AIONewPartitions(total_count=3)})
    finally:
        await admin.close()


def test_kafkajs_adds_partitions(servers: str, topic: str) -> None:
    require(tools.have_kafkajs(), "kafkajs")

    def grow(total: int) -> Any:
        request = {"topicPartitions": [{"topic": topic, "count": total}]}
        return ask(servers, "administer", method="createPartitions", options=request)

    grow(3)
    found = ask(servers, "administer", method="fetchTopicMetadata", options={"topics": [topic]})
    assert len(found["topics"][0]["partitions"]) == 3
    with pytest.raises(KafkaJsError) as refusal:
        grow(1)
    assert refusal.value.kind == "INVALID_PARTITIONS"


# ---- clients discover new partitions


def test_librdkafka_uses_added_partitions(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers, **SOON})
    without_group = {"group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, **without_group, **SOON})
    try:
        assert len(producer.list_topics(topic, SECONDS).topics[topic].partitions) == 1
        expand(servers, topic, 3)
        eventually(
            lambda: len(producer.list_topics(topic, SECONDS).topics[topic].partitions) == 3,
            "the producer knows the new partitions",
        )
        producer.produce(topic, b"x", partition=2)
        assert producer.flush(SECONDS) == 0
        consumer.assign([TopicPartition(topic, 2, 0)])
        message = consumer.poll(SECONDS)
        assert message is not None
        assert message.error() is None
        assert (message.partition(), message.value()) == (2, b"x")
    finally:
        consumer.close()


def test_kafka_python_uses_added_partitions(servers: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, metadata_max_age_ms=100)
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=None)
    try:
        assert producer.partitions_for(topic) == {0}
        expand(servers, topic, 3)
        eventually(lambda: producer.partitions_for(topic) == {0, 1, 2}, "it knows the partitions")
        sent = [producer.send(topic, b"x", partition=each).get(SECONDS) for each in range(3)]
        assert [record.offset for record in sent] == [0, 0, 0]
        assert consumer.partitions_for_topic(topic) == {0, 1, 2}
    finally:
        producer.close()
        consumer.close()


def test_keys_map_by_new_partition_count(servers: str, raw: Raw) -> None:
    """Every client takes the key's hash modulo the partition count, so a key may move when the count grows."""
    topic = "keys-that-move"
    raw.create_topic(topic, partitions=1)
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random", **SOON})
    found: set[int] = set()

    def note(_: KafkaError | None, message: Any) -> None:
        found.add(message.partition())

    def write() -> set[int]:
        for number in range(50):
            producer.produce(topic, b"x", key=str(number), on_delivery=note)
        assert producer.flush(SECONDS) == 0
        return found

    assert write() == {0}
    expand(servers, topic, 8)
    eventually(lambda: write() == {*range(8)}, "its records go to all of them")
