"""Topics for programs under test: create, write and read them."""

from __future__ import annotations

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
