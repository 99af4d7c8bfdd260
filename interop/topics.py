"""Topics for programs under test: create, write and read them."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, KafkaError
from confluent_kafka import Consumer as OtherConsumer
from confluent_kafka import TopicPartition as OtherTopicPartition

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, ConsumedRecord, Consumer
from barnabas.client.producer import Producer
from barnabas.errors import ApiError
from barnabas.model import TopicPartition


def create_topic(servers: str, name: str, partitions: int, replicas: int = 3) -> None:
    topic = NewTopic(name=name, partitions=partitions, replication_factor=replicas)
    with Cluster(servers) as client:
        (outcome,) = Admin(client).create_topics([topic])
        assert outcome.error is None, outcome.error


def write(servers: str, topic: str, lines: list[str]) -> None:
    with Cluster(servers) as client, Producer(client) as producer:
        for line in lines:
            producer.send(topic, line.encode())


def read(servers: str, topic: str) -> list[ConsumedRecord]:
    """Return all records of a topic, or none if it does not exist yet."""
    with Cluster(servers, timeout_s=5.0) as client:
        try:
            partitions = [
                TopicPartition(topic, found.partition) for found in client.topic(topic).partitions
            ]
            consumer = Consumer(client, dict.fromkeys(partitions, Beginning()))
            found = []
            while not consumer.at_end:
                found += consumer.poll(0.2)
            return found
        except ApiError:
            return []


def read_committed(servers: str, topic: str, partitions: int) -> list[tuple[bytes, bytes]]:
    """Return the keys and values of all records that are not in open or aborted transactions."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "unused",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = OtherConsumer(settings)
    found = []
    ended: set[int] = set()
    try:
        consumer.assign(
            [OtherTopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)]
        )
        while len(ended) < partitions:
            message = consumer.poll(5.0)
            if message is None:
                return []
            error = message.error()
            if error is None:
                found.append((message.key() or b"", message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    finally:
        consumer.close()
    return found
