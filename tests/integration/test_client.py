"""Our client and other clients on the same topics: each reads records that the other wrote."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from barnabas import LocalCluster
from barnabas.batch.compression import Compression
from barnabas.client.admin import Admin, NewPartitions, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import (
    Beginning,
    ConsumedRecord,
    Consumer,
    FromEnd,
    FromOffset,
    FromTime,
    Start,
    resolve_starts,
)
from barnabas.client.log_dir_admin import LogDirAdmin
from barnabas.client.producer import Producer
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.wire.messages.list_offsets import MAX_TIMESTAMP
from support.ports import free_port
from support.waiting import eventually

VALUES = [b"value %d " % number * 20 for number in range(200)]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    # Records here carry old timestamps on purpose. With retention, they would be deleted after half a minute.
    with LocalCluster(settings={"log.retention.ms": "-1"}) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def cluster(servers: str) -> Iterator[Cluster]:
    with Cluster(servers, timeout_s=10) as cluster:
        yield cluster


def create(cluster: Cluster, name: str, partitions: int = 1) -> TopicPartition:
    (outcome,) = Admin(cluster).create_topics([NewTopic(name=name, partitions=partitions)])
    assert outcome.error is None
    return TopicPartition(name, 0)


def read_all(cluster: Cluster, *partitions: TopicPartition) -> list[ConsumedRecord]:
    consumer = Consumer(cluster, dict.fromkeys(partitions, Beginning()))
    return list(consumer.records(stop_at_end=True))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_our_consumer_reads_librdkafka_records(servers: str, cluster: Cluster, codec: str) -> None:
    partition = create(cluster, f"theirs-{codec}")
    producer: Any = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 50}
    )
    for number, value in enumerate(VALUES):
        producer.produce(partition.topic, value, key=str(number), headers=[("n", str(number))])
    assert producer.flush(10) == 0
    found = read_all(cluster, partition)
    assert [record.value for record in found] == VALUES
    assert found[7].key == b"7"
    assert found[7].headers == (("n", b"7"),)


@pytest.mark.parametrize("codec", list(Compression))
def test_librdkafka_reads_our_records(servers: str, cluster: Cluster, codec: Compression) -> None:
    partition = create(cluster, f"ours-{codec.name}")
    with Producer(cluster, compression=codec) as producer:
        for number, value in enumerate(VALUES):
            producer.send(partition.topic, value, key=b"%d" % number, headers=[("n", None)])
    consumer: Any = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "check.crcs": True,
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(partition.topic, 0, 0)])
        found: list[Any] = consumer.consume(len(VALUES), timeout=30)
    finally:
        consumer.close()
    assert [message.value() for message in found] == VALUES
    assert found[7].key() == b"7"
    assert found[7].headers() == [("n", None)]


def test_partitioner_matches_librdkafka_murmur2(servers: str, cluster: Cluster) -> None:
    create(cluster, "keys", partitions=7)
    theirs: Any = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "partitioner": "murmur2_random"}
    )
    with Producer(cluster) as ours:
        for number in range(50):
            theirs.produce("keys", b"theirs", key=b"key-%d" % number)
            ours.send("keys", b"ours", key=b"key-%d" % number)
    assert theirs.flush(10) == 0
    placed: dict[bytes | None, set[int]] = {}
    for record in read_all(cluster, *(TopicPartition("keys", number) for number in range(7))):
        placed.setdefault(record.key, set()).add(record.partition)
    assert len(placed) == 50
    assert all(len(partitions) == 1 for partitions in placed.values())


def test_start_offsets_by_time_and_from_end(cluster: Cluster) -> None:
    partition = create(cluster, "offsets")
    producer = Producer(cluster)
    for number in range(20):
        producer.send("offsets", b"", timestamp=1_000_000 + number * 10)
        if number % 5 == 4:
            producer.flush()
    cases: list[tuple[Start, int]] = [
        (FromTime(0), 0),
        (FromTime(1_000_071), 8),
        (FromTime(1_000_190), 19),
        (FromTime(1_000_191), 20),
        (FromEnd(3), 17),
    ]
    for start, expected in cases:
        assert resolve_starts(cluster, {partition: start}) == {partition: expected}
    youngest = Admin(cluster).list_offsets({partition: MAX_TIMESTAMP})[partition]
    assert (youngest.offset, youngest.timestamp) == (19, 1_000_190)


def test_delete_records_moves_log_start_offset(cluster: Cluster) -> None:
    partition = create(cluster, "shortened")
    with Producer(cluster) as producer:
        for number in range(10):
            producer.send("shortened", b"%d" % number)
    assert Admin(cluster).delete_records({partition: 4}) == {partition: 4}
    assert [record.offset for record in read_all(cluster, partition)] == [4, 5, 6, 7, 8, 9]
    consumer = Consumer(cluster, {partition: FromOffset(1)})
    with pytest.raises(ApiError) as caught:
        consumer.poll(5)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (
        next(Consumer(cluster, {partition: FromOffset(1)}, reset=Beginning()).records()).offset == 4
    )


def test_idempotent_producer_writes_consecutive_batches(cluster: Cluster) -> None:
    partition = create(cluster, "sequence")
    producer = Producer(cluster, idempotent=True)
    for number in range(5):
        producer.send("sequence", b"%d" % number)
        (sent,) = producer.flush()
        assert (sent.base_offset, sent.count) == (number, 1)
    assert producer.ensure_identity()[0] >= 0
    assert [record.value for record in read_all(cluster, partition)] == [
        b"0",
        b"1",
        b"2",
        b"3",
        b"4",
    ]


def test_admin_describes_cluster_configs_and_log_dirs(cluster: Cluster) -> None:
    partition = create(cluster, "described")
    with Producer(cluster) as producer:
        producer.send("described", bytes(1000))
    admin = Admin(cluster)
    described = admin.describe_cluster()
    assert described.cluster_id
    assert described.controller_id in {broker.broker_id for broker in described.brokers}
    (broker,) = cluster.view.brokers
    assert any(entry.name == "log.dirs" for entry in admin.describe_broker_configs(broker))
    topic_configs = {
        entry.name: entry for entry in admin.describe_topic_configs(["described"])["described"]
    }
    assert topic_configs["cleanup.policy"].value == "delete"
    (directory,) = LogDirAdmin(cluster).describe_log_dirs()[broker]
    assert {log.partition: log.size_bytes for log in directory.logs}[partition] > 1000
    with pytest.raises(ApiError) as caught:
        admin.describe_topic_configs(["not-there"])
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_recreated_topic_has_new_id_and_no_records(cluster: Cluster) -> None:
    partition = create(cluster, "again")
    with Producer(cluster) as producer:
        producer.send("again", b"old")
    admin = Admin(cluster)
    before = cluster.topic("again").id
    assert [outcome.error for outcome in admin.delete_topics(["again"])] == [None]
    create(cluster, "again")
    assert admin.describe_topics(["again"])[0].id != before
    assert read_all(cluster, partition) == []


def test_client_survives_broker_restart_without_loss(tmp_path: Path) -> None:
    port = free_port()
    first = LocalCluster(data=tmp_path, port=port).start()
    servers = first.bootstrap_servers
    with Cluster(servers, timeout_s=30) as writing, Cluster(servers, timeout_s=30) as reading:
        partition = create(writing, "kept")
        producer = Producer(writing)
        consumer = Consumer(reading, {partition: Beginning()})
        producer.send("kept", b"before")
        producer.flush()
        received = consumer.records()
        assert next(received).value == b"before"
        first.stop()
        producer.send("kept", b"while away")
        with ThreadPoolExecutor(1) as elsewhere:
            sent = elsewhere.submit(producer.flush)
            with LocalCluster(data=tmp_path, port=port):
                assert [found.count for found in sent.result(30)] == [1]
                assert next(received).value == b"while away"


def test_new_assignment_resets_consumer_error_deadline() -> None:
    """Group members may be without partitions for longer than the timeout."""
    with LocalCluster() as running, Cluster(running.bootstrap_servers, timeout_s=2) as reading:
        partition = create(reading, "orders")
        consumer = Consumer(reading, {partition: Beginning()})
        running.brokers[1].kill()
        assert consumer.poll(0.01) == []
        was_before = consumer.retry_deadline
        assert was_before is not None
        eventually(lambda: was_before.passed, "its deadline has passed")
        consumer.assign({})
        consumer.assign({partition: 0})
        assert consumer.poll(0.01) == []
        with pytest.raises(ApiError, match=r"NETWORK_EXCEPTION|no broker"):
            eventually(lambda: bool(consumer.poll(0.01)), "records")


def test_client_switches_to_next_broker_after_failure() -> None:
    with (
        LocalCluster(brokers=3) as local,
        Cluster(local.bootstrap_servers, timeout_s=10) as cluster,
    ):
        cluster.refresh()
        (spoken_to,) = [each.address for each in cluster.connections.values()]
        victim = next(each for each in local.brokers.values() if each.address == spoken_to)
        victim.kill()
        assert len(cluster.refresh().brokers) in (2, 3)
        for broker in local.brokers.values():
            broker.kill()
        with pytest.raises(ApiError, match="NETWORK_EXCEPTION"):
            cluster.refresh()


# ---- topics with added partitions


def expand(cluster: Cluster, topic: str, count: int) -> ErrorCode:
    (outcome,) = Admin(cluster).create_partitions([NewPartitions(name=topic, count=count)])
    return ErrorCode.NONE if outcome.error is None else outcome.error.code


def test_create_partitions_succeeds_or_returns_error(cluster: Cluster) -> None:
    create(cluster, "grows")
    admin = Admin(cluster)
    placed = NewPartitions(name="grows", count=3, assignment=[[1], [1]])
    (checked,) = admin.create_partitions([placed], validate_only=True)
    assert checked.error is None
    assert len(admin.describe_topics(["grows"])[0].partitions) == 1
    (outcome,) = admin.create_partitions([placed])
    assert (outcome.name, outcome.error) == ("grows", None)
    assert len(admin.describe_topics(["grows"])[0].partitions) == 3
    missing, small = admin.create_partitions(
        [NewPartitions(name="nowhere", count=2), NewPartitions(name="grows", count=3)]
    )
    assert missing.error is not None
    assert missing.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert small.error is not None
    assert small.error.code is ErrorCode.INVALID_PARTITIONS
    assert "already has 3 partitions" in small.error.message


def test_producer_discovers_new_partitions(servers: str, cluster: Cluster) -> None:
    create(cluster, "found")
    with Cluster(servers) as own:
        producer = Producer(own, metadata_max_age_s=0)
        producer.send("found", b"first", key=b"k")
        producer.flush()
        assert expand(cluster, "found", 4) is ErrorCode.NONE
        assert producer.send("found", b"told", partition=3).partition == 3
        with pytest.raises(ApiError, match="no partition 4"):
            producer.send("found", b"told", partition=4)
        producer.flush()
        keyed = {producer.send("found", b"x", key=b"%d" % n).partition for n in range(40)}
        assert keyed == {0, 1, 2, 3}
        producer.flush()


def test_whole_topic_consumer_discovers_new_partitions(
    servers: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.client.consumer.PARTITION_CHECK_S", 0.05)
    first = create(cluster, "whole")
    with Cluster(servers) as own:
        consumer_of_all = Consumer(
            own, {first: Beginning()}, watched_topics=["whole"], fetch_wait_ms=50
        )
        assert consumer_of_all.poll(0.1) == []
        assert expand(cluster, "whole", 3) is ErrorCode.NONE
        with Producer(cluster) as producer:
            for partition in range(3):
                producer.send("whole", b"%d" % partition, partition=partition)
        found: set[bytes | None] = set()
        deadline = time.monotonic() + 10
        while len(found) < 3:
            assert time.monotonic() < deadline, found
            found |= {record.value for record in consumer_of_all.poll(0.2)}
