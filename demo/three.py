"""The third act: three brokers in this process, and the one in charge is killed while a producer writes."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, TopicPartition

from barnabas import LocalCluster
from demo.quiet import QUIET

TOPIC, LATER = "replicated", "created_afterwards"
RECORDS = 2_000
DEADLINE_SECONDS = 60


def play(say: Callable[[str], None]) -> bool:
    """True if nothing was lost and the topic was created."""
    began = time.monotonic()
    with LocalCluster(brokers=3) as cluster:
        first = cluster.controller_id
        assert first is not None
        say(
            f"9  Three brokers are up after {time.monotonic() - began:.2f} s; {first} is controller."
        )
        create(cluster.bootstrap_servers, TOPIC)
        acknowledged = write(cluster.bootstrap_servers, "before")
        began = time.monotonic()
        cluster.brokers[first].kill()
        second = wait_for_another(cluster, first)
        seconds = time.monotonic() - began
        say(f"10 Broker {first} is killed; {second} is controller after {seconds:.2f} s,")
        create(cluster.bootstrap_servers, LATER, replicas=2)
        say(f"   and creates topic '{LATER}' with 2 replicas.")
        acknowledged += write(cluster.bootstrap_servers, "after")
        cluster.brokers[first].start()
        found = read(cluster.bootstrap_servers)
        say(f"   {len(acknowledged):,} records acknowledged, {len(found):,} read again.")
    return sorted(found) == sorted(acknowledged)


def create(servers: str, topic: str, replicas: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": servers}, logger=QUIET)
    admin.create_topics([NewTopic(topic, 1, replicas)])[topic].result(DEADLINE_SECONDS)


def wait_for_another(cluster: LocalCluster, first: int) -> int:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (found := cluster.controller_id) in (None, first):
        assert time.monotonic() < deadline, "nobody took over"
        time.sleep(0.001)
    assert found is not None
    return found


def write(servers: str, mark: str) -> list[str]:
    acknowledged: list[str] = []

    def delivered(error: object, message: object) -> None:
        if error is None:
            acknowledged.append(message.value().decode())  # type: ignore[attr-defined]

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True}, logger=QUIET)
    for number in range(RECORDS):
        producer.produce(TOPIC, f"{mark} {number}", on_delivery=delivered)
    producer.flush(DEADLINE_SECONDS)
    return acknowledged


def read(servers: str) -> list[str]:
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    partition = TopicPartition(TOPIC, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    end = consumer.end_offsets([partition])[partition]
    found: list[str] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while consumer.position(partition) < end and time.monotonic() < deadline:
        for batch in consumer.poll(timeout_ms=500).values():
            found += [record.value.decode() for record in batch]
    consumer.close()
    return found
