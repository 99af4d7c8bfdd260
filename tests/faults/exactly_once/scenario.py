"""Brokers, coordinators among them, are killed and paused while loops copy a topic in transactions.

Afterwards a read_committed reader sees every input record exactly once, in its order, and no transaction is open.

A short run has a fixed seed. `make faults` runs for BARNABAS_FAULT_SECONDS with a new seed each time, which is printed;
BARNABAS_SEED repeats it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from random import Random

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from barnabas.client.cluster import Cluster
from barnabas.errors import ApiError
from support.cluster import ClusterProcesses
from support.seed import choose_seed
from support.waiting import eventually
from tests.faults.exactly_once.loops import INPUT, Loop

SECONDS = float(os.environ.get("BARNABAS_FAULT_SECONDS") or 0)
SHORT_SECONDS = 12.0
SEED = 5
PARTITIONS = 3
PAUSE_S_MAX = 2.0
PAUSED_SHARE = 0.25
SESSION_SECONDS = 3
SETTLE_SECONDS = 60.0
RECORDS_PER_SECOND = 100
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_SECONDS * 1000),
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "barnabas.history.topic.enable": "false",
    "auto.create.topics.enable": "false",
}


def copy_while_brokers_fail(
    cluster: ClusterProcesses, loops: Sequence[Loop], short_seconds: float = SHORT_SECONDS
) -> None:
    """Run the loops, kill brokers, and check the copies. Without BARNABAS_FAULT_SECONDS, kill for a short time."""
    servers = cluster.bootstrap_servers
    outputs = sorted({loop.name for loop in loops})
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topics = [NewTopic(name, PARTITIONS, 3) for name in (INPUT, *outputs)]
    for created in admin.create_topics(topics).values():
        created.result()
    source = Input(servers)
    source.thread.start()
    for loop in loops:
        loop.thread.start()
    try:
        for loop in loops:
            eventually(lambda loop=loop: loop.committed > 0, f"{loop.name} commits", SETTLE_SECONDS)  # type: ignore[misc]
        random = Random(choose_seed() if SECONDS else SEED)
        disturb_brokers(cluster, random, SECONDS or short_seconds)
        source.stop()
        for name in outputs:
            wait_until_copied(servers, name)
    finally:
        source.over.set()
        for loop in loops:
            print(loop.report())
        for loop in loops:
            loop.stop()
    expected = read_committed(servers, INPUT)
    assert sum(map(len, expected)) == source.count
    print(f"records: {source.count}")
    for name in outputs:
        assert stable_offsets(admin, name) == end_offsets(admin, name), f"{name}: open transaction"
        for index, values in enumerate(read_committed(servers, name)):
            assert_same(f"{name}-{index}", values, expected[index])


class Input:
    """An idempotent producer that writes to all partitions of the input topic."""

    def __init__(self, servers: str) -> None:
        self.producer = Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0}
        )
        self.count = 0
        self.failed: list[KafkaError] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        while not self.over.wait(1 / RECORDS_PER_SECOND):
            self.producer.produce(
                INPUT,
                b"%d" % self.count,
                partition=self.count % PARTITIONS,
                on_delivery=self.on_delivery,
            )
            self.count += 1
            self.producer.poll(0)

    def on_delivery(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self.failed.append(error)

    def stop(self) -> None:
        self.over.set()
        self.thread.join()
        assert self.producer.flush(SETTLE_SECONDS) == 0
        assert not self.failed, self.failed[0]


def disturb_brokers(cluster: ClusterProcesses, random: Random, seconds: float) -> None:
    """Kill or pause one broker after the other. In between, all replicas of the internal topics get in sync."""
    ends = time.monotonic() + seconds
    done: Counter[str] = Counter()
    while time.monotonic() < ends:
        time.sleep(random.uniform(0, PAUSE_S_MAX))
        broker = random.choice(list(cluster.brokers.values()))
        if random.random() < PAUSED_SHARE:
            broker.pause()
            time.sleep(SESSION_SECONDS + random.uniform(0, PAUSE_S_MAX))
            broker.resume()
            done["paused"] += 1
        else:
            broker.kill()
            time.sleep(random.uniform(0, PAUSE_S_MAX))
            broker.start()
            done["killed"] += 1
        wait_until_in_sync(cluster)
    print(f"brokers: {dict(done)}")


def wait_until_in_sync(cluster: ClusterProcesses) -> None:
    cluster.wait_until_ready()

    def all_in_sync() -> bool:
        with Cluster(cluster.bootstrap_servers) as client:
            try:
                found = client.refresh(INTERNAL_TOPICS).topics
            except ApiError:
                return False
        return all(
            len(partition.isr) == len(cluster.brokers)
            for name in INTERNAL_TOPICS
            for partition in found[name].partitions
        )

    eventually(all_in_sync, "all replicas of internal topics are in sync", SETTLE_SECONDS)


def wait_until_copied(servers: str, group: str) -> None:
    """Wait until the group has committed the end offset of each input partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    positions = [Position(INPUT, at) for at in range(PARTITIONS)]

    def is_copied() -> bool:
        try:
            committed = consumer.committed(positions, 5)
            ends = [consumer.get_watermark_offsets(each, 5)[1] for each in positions]
        except KafkaException:
            return False
        return [each.offset for each in committed] == ends

    try:
        eventually(is_copied, f"group {group} has copied all records", SETTLE_SECONDS)
    finally:
        consumer.close()


def read_committed(servers: str, topic: str) -> list[list[bytes]]:
    """Read a topic to its last stable offset. Return the values by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([Position(topic, at, 0) for at in range(PARTITIONS)])
    values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    unread = set(range(PARTITIONS))
    deadline = time.monotonic() + SETTLE_SECONDS
    try:
        while unread:
            assert time.monotonic() < deadline, f"{topic}: no end of partitions {unread}"
            for message in consumer.consume(1000, 1.0):
                error = message.error()
                if error is None:
                    values[message.partition()].append(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
    finally:
        consumer.close()
    return values


def end_offsets(
    admin: AdminClient,
    topic: str,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> list[int]:
    wanted = {Position(topic, at): OffsetSpec.latest() for at in range(PARTITIONS)}
    found = admin.list_offsets(wanted, isolation_level=isolation)
    offsets = {each.partition: future.result().offset for each, future in found.items()}
    return [offsets[at] for at in range(PARTITIONS)]


def stable_offsets(admin: AdminClient, topic: str) -> list[int]:
    return end_offsets(admin, topic, IsolationLevel.READ_COMMITTED)


def assert_same(name: str, values: list[bytes], expected: list[bytes]) -> None:
    """Compare, and describe only the first difference."""
    missing = set(expected) - set(values)
    repeated = len(values) - len(set(values))
    assert not missing and not repeated, f"{name}: {len(missing)} missing, {repeated} repeated"
    assert values == expected, f"{name}: the order differs"
