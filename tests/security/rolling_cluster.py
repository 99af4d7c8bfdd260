"""A cluster of three processes whose settings change, one broker after the other, while producers run."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.errors import ApiError
from barnabas.security.client_settings import ClientSecurity
from support.cluster import ClusterProcesses, MemberProcess
from support.waiting import eventually

TOPIC = "orders"
PARTITIONS, REPLICAS = 3, 3
PAUSE_S = 0.005
WAIT_S = 180.0
AFTER_STEP = 50
"""Records that must be delivered after each step."""
SETTINGS = {
    "barnabas.history.topic.enable": "false",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "6000",
}


class RunningProducer:
    """An idempotent producer that sends numbered records in a thread until `stop`."""

    def __init__(self, name: str, settings: Mapping[str, str]) -> None:
        self.name = name
        self.producer = Producer(
            {**settings, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self.sent = 0
        self.delivered = 0
        self.errors: list[KafkaError] = []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self) -> None:
        while not self.stopping.wait(PAUSE_S):
            self.producer.produce(
                TOPIC,
                f"{self.name}-{self.sent}".encode(),
                partition=self.sent % PARTITIONS,
                on_delivery=self.count,
            )
            self.sent += 1
            self.producer.poll(0)

    def count(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.errors.append(error)

    def wait_for_more(self) -> None:
        wanted = self.sent + AFTER_STEP
        eventually(
            lambda: self.delivered >= wanted or bool(self.errors), "records are delivered", WAIT_S
        )
        assert self.errors == []

    def stop(self) -> None:
        if not self.stopping.is_set():
            self.stopping.set()
            self.thread.join()
            assert self.producer.flush(60) == 0


def create_topic(servers: str) -> None:
    """Create the topic with a replica on every broker."""
    with Cluster(servers) as client:
        topic = NewTopic(name=TOPIC, partitions=PARTITIONS, replication_factor=REPLICAS)
        (outcome,) = Admin(client).create_topics([topic])
        assert outcome.error is None


def restart(
    cluster: ClusterProcesses,
    broker: MemberProcess,
    settings: Mapping[str, str],
    servers: str,
    security: ClientSecurity,
) -> None:
    """Restart one broker with new settings. Returns when all replicas are in sync again, as a client at `servers` sees
    it."""
    assert broker.stop() == 0
    broker.configure(settings)
    broker.launch()
    eventually(
        lambda: is_in_sync(cluster, servers, security), f"broker {broker.id} is in sync", WAIT_S
    )


def is_in_sync(cluster: ClusterProcesses, servers: str, security: ClientSecurity) -> bool:
    for broker in cluster.brokers.values():
        assert broker.is_running, broker.running.describe()
    try:
        with Cluster(servers, timeout_s=20.0, security=security) as client:
            view = client.refresh([TOPIC])
        partitions = view.topic(TOPIC).partitions
    except ApiError:
        return False
    return len(view.brokers) == len(cluster.brokers) and all(
        len(each.isr) == REPLICAS for each in partitions
    )


def expect_all_delivered(settings: Mapping[str, str], *producers: RunningProducer) -> None:
    """Check that no record has failed, is lost or is duplicated. `settings` are those of a consumer."""
    for producer in producers:
        assert producer.errors == []
        assert producer.delivered == producer.sent
    values = read_all(settings, sum(producer.sent for producer in producers))
    assert sorted(values) == sorted(
        f"{producer.name}-{number}" for producer in producers for number in range(producer.sent)
    )


def read_all(settings: Mapping[str, str], count: int) -> list[str]:
    """Return the values of all records of the topic: at least `count`, and those after them."""
    consumer = Consumer(
        {
            **settings,
            "group.id": "check",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([TOPIC])
    values: list[str] = []
    ended: set[int] = set()
    while len(ended) < PARTITIONS or len(values) < count:
        message = consumer.poll(60)
        assert message is not None, f"{len(values)} of {count} records"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition() or 0)
            continue
        value = message.value()
        assert value is not None
        values.append(value.decode())
    consumer.close()
    return values
