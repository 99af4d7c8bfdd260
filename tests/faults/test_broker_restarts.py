"""Brokers of three are killed, stopped and paused at random under load. No acknowledged record is lost.

`BARNABAS_SEED=n` repeats a run.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections import Counter

from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

from barnabas import LocalCluster
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.cluster.in_process import ClusterBroker
from barnabas.errors import ApiError
from support.seed import choose_seed
from support.waiting import eventually

TOPIC, PARTITIONS = "letters", 3
FAULTS = 10
SESSION_S = 1.0
DEADLINE_S = 60.0
QUIET = logging.getLogger("tests.librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


class Writer(threading.Thread):
    """Writes numbers until it is stopped.

    librdkafka has one request in flight, since with several it may write a batch twice when leaders change
    (`RdkafkaInOrder` in chaos/writer_process.py). It also reports a rejected batch as delivered, without an offset, if
    the new leader accepts a later batch before the rejected one is resent. No broker acknowledged such a record, so it
    may be missing.
    """

    def __init__(self, servers: str) -> None:
        super().__init__(name="writer", daemon=True)
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 1,
                "socket.timeout.ms": 2000,
                "reconnect.backoff.max.ms": 200,
            },
            logger=QUIET,
        )
        self.acknowledged: list[str] = []
        self.assumed: list[str] = []
        """Reported as delivered, but acknowledged by no broker."""
        self.failed: list[object] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            self.producer.produce(TOPIC, str(number), on_delivery=self.delivered)
            self.producer.poll(0.002)
            number += 1
        self.producer.flush(DEADLINE_S)

    def end(self) -> None:
        self.stopping.set()
        self.join()

    def delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(error)
            return
        is_acknowledged = message.offset() is not None  # type: ignore[attr-defined]
        reported = self.acknowledged if is_acknowledged else self.assumed
        reported.append(message.value().decode())  # type: ignore[attr-defined]


def fail_and_restart(broker: ClusterBroker, choose: random.Random) -> str:
    """Fail the broker in a random way and restart it."""
    what = choose.choice(["kill", "kill without a word", "stop", "pause", "pause for too long"])
    away_s = choose.random() * SESSION_S / 2
    match what:
        case "kill":
            broker.kill()
            time.sleep(away_s)
            broker.start()
        case "kill without a word":
            broker.kill(expire=False)
            time.sleep(away_s)
            broker.start()
        case "stop":
            broker.stop()
            time.sleep(away_s)
            broker.start()
        case _:
            broker.pause()
            time.sleep(away_s if what == "pause" else 1.5 * SESSION_S)
            broker.resume()
    return what


def is_healthy(servers: str) -> bool:
    try:
        with Cluster(servers) as client:
            (topic,) = Admin(client).describe_topics([TOPIC])
    except ApiError:
        return False  # the answering broker has just restarted and knows no metadata yet
    return not any(each.is_offline or each.is_under_replicated for each in topic.partitions)


def read_all(servers: str) -> Counter[str]:
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    with contextlib.closing(consumer):
        partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        found = Counter[str]()
        deadline = time.monotonic() + DEADLINE_S
        while any(consumer.position(each) < ends[each] for each in partitions):
            assert time.monotonic() < deadline, "reading took too long"
            for batch in consumer.poll(timeout_ms=500).values():
                found.update(record.value.decode() for record in batch)
        return found


def test_random_broker_restarts_lose_and_duplicate_nothing() -> None:
    choose = random.Random(choose_seed())
    settings = {"zookeeper.session.timeout.ms": int(SESSION_S * 1000)}
    with LocalCluster(brokers=3, settings=settings) as cluster:
        servers = cluster.bootstrap_servers
        with Cluster(servers) as client:
            wanted = NewTopic(name=TOPIC, partitions=PARTITIONS, replication_factor=3)
            Admin(client).create_topics([wanted])
        writer = Writer(servers)
        writer.start()
        try:
            for _ in range(FAULTS):
                broker = cluster.brokers[choose.choice([1, 2, 3])]
                what = fail_and_restart(broker, choose)
                print(f"{what}: broker {broker.id}, acknowledged {len(writer.acknowledged)}")
                # One at a time: with two of three brokers down, nothing is promised.
                eventually(
                    lambda: is_healthy(servers), "all replicas are in sync again", DEADLINE_S
                )
        finally:
            writer.end()
        found = read_all(servers)
    assert not writer.failed
    assert writer.acknowledged
    doubled = {value: count for value, count in found.items() if count > 1}
    assert not doubled
    assert not set(writer.acknowledged) - set(found), "lost"
    assert not set(found) - set(writer.acknowledged) - set(writer.assumed), "never acknowledged"
