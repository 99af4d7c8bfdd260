"""Each opens the other's data directory: all records, log start offsets, and producer states.

Kafka keeps the topics of a data directory in ZooKeeper, Barnabas in its registry, so only the logs are moved.
docs/differences.md describes how, and these tests do exactly that.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, TopicPartition

from barnabas.batch.compression import Compression
from barnabas.batch.header import batch_headers
from barnabas.batch.records import Record, build_batch, records
from barnabas.errors import ErrorCode
from barnabas.java.find import Java
from barnabas.storage.checkpoints import LOG_START
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.fetch import FetchResponse
from barnabas.wire.messages.list_offsets import ListOffsetsResponse
from interop.harness.jars import KAFKA_3_9, Jars
from interop.harness.kafka import KafkaBroker, KafkaCluster
from interop.harness.tools import Tools
from interop.harness.zookeeper import ZooKeeper
from interop.scenarios.requests import list_offsets
from support.broker import BrokerProcess
from support.waiting import eventually
from tests.compatibility.raw import Raw, fetch_request
from tests.compatibility.raw_member import wait_until_loaded

START_CHECKPOINT_MS = {
    "log.flush.start.offset.checkpoint.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
}
ADOPT = {"barnabas.adopt.logs": "true"}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "codecs": (1, {}),
    "tombstones": (1, {"cleanup.policy": "compact"}),
    "segments": (3, {"segment.bytes": "2000", "index.interval.bytes": "200"}),
    "counted": (1, {}),
    "shortened": (1, {"segment.bytes": "1000"}),
    "untouched": (2, {}),
}
PRODUCER_ID, BATCHES, SHORTENED_TO = 4_711, 40, 25

Found = dict[tuple[str, int], list[Record]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedData:
    """The expected records, and the last and the next batch of the idempotent producer."""

    found: Found
    last_batch: bytes
    next_batch: bytes


def fill(raw: Raw) -> ExpectedData:
    now_ms = int(time.time() * 1000)

    def batch(*found: tuple[bytes | None, bytes | None], **options: int) -> bytes:
        return build_batch(
            [
                Record(n, now_ms + n, key, value, (("trace", b"%d" % n), ("none", None)))
                for n, (key, value) in enumerate(found)
            ],
            compression=Compression(options.pop("codec", 0)),
            **options,  # type: ignore[arg-type]
        )

    def produce(topic: str, data: bytes, partition: int = 0) -> None:
        answer = raw.produce(topic, data, partition=partition)
        assert answer.error_code == ErrorCode.NONE, answer

    for name, (partitions, configs) in TOPICS.items():
        raw.create_topic(name, partitions=partitions, configs=configs)
    for codec in Compression:
        produce("codecs", batch(*((b"key", b"v%d" % n) for n in range(50)), codec=codec))
    produce("tombstones", batch((b"a", b"1"), (b"b", b"2"), (b"a", None), (b"c", b"")))
    for number in range(BATCHES):
        for partition in range(3):
            value = b"%d in %d" % (number, partition)
            produce("segments", batch((None, value), (b"k", value * 5)), partition)
        produce("shortened", batch((None, b"%d" % number)))
    batches = [
        batch((None, b"%d" % n), producer_id=PRODUCER_ID, producer_epoch=2, base_sequence=n)
        for n in range(8)
    ]
    for data in batches[:-1]:
        produce("counted", data)
    shorten(raw, "shortened", SHORTENED_TO)
    return ExpectedData(found=everything(raw), last_batch=batches[-2], next_batch=batches[-1])


def shorten(raw: Raw, topic: str, offset: int) -> None:
    wanted = DeleteRecordsTopic(topic, (DeleteRecordsPartition(0, offset),))
    answer = raw.ask(DeleteRecordsRequest(topics=(wanted,), timeout_ms=5000), DeleteRecordsResponse)
    assert answer.topics[0].partitions[0].low_watermark == offset


def everything(raw: Raw) -> Found:
    """Every record of every partition, from its log start offset."""
    found: Found = {}
    for topic, (partitions, _) in TOPICS.items():
        for index in range(partitions):
            found[topic, index] = list(read_partition(raw, topic, index))
    return found


def read_partition(raw: Raw, topic: str, index: int) -> Iterator[Record]:
    request = list_offsets(topic, -2, partition=index)
    at = raw.ask(request, ListOffsetsResponse).topics[0].partitions[0].offset
    while True:
        answer = raw.ask(fetch_request(topic, {index: at}), FetchResponse, 12)
        (fetched,) = answer.responses[0].partitions
        assert fetched.error_code == ErrorCode.NONE, fetched
        data = memoryview(bytes(fetched.records or b""))
        before = at
        for position, header in batch_headers(data):
            for record in records(data[position : position + header.size]):
                if record.offset >= at:
                    yield record
            before = header.next_offset
        if before == at:
            assert at == fetched.high_watermark
            return
        at = before


def check(raw: Raw, written: ExpectedData) -> None:
    """Check that all records exist and that produce continues from there."""
    found = everything(raw)
    assert {key: len(kept) for key, kept in found.items()} == {
        key: len(kept) for key, kept in written.found.items()
    }
    assert found == written.found
    assert found["shortened", 0][0].offset == SHORTENED_TO
    again = raw.produce("counted", written.last_batch)
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 6)
    following = raw.produce("counted", written.next_batch)
    assert (following.error_code, following.base_offset) == (ErrorCode.NONE, 7)
    plain = build_batch([Record(0, int(time.time() * 1000), None, b"more")])
    answer = raw.produce("segments", plain, partition=2)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 2 * BATCHES)


def await_log_start(log_dir: Path) -> None:
    """Wait for the checkpoint: like Kafka, a broker killed right after a DeleteRecords may forget it."""
    path = log_dir / LOG_START
    line = f"shortened 0 {SHORTENED_TO}"
    eventually(lambda: path.exists() and line in path.read_text(), "the log start is written")


@contextmanager
def kafka_on(
    directory: Path, java: Java, jars: Jars, zookeeper: ZooKeeper
) -> Iterator[KafkaBroker]:
    with KafkaCluster(
        directory, java=java, jars=jars, zookeeper=zookeeper, settings=START_CHECKPOINT_MS
    ) as cluster:
        yield cluster.brokers[0]


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_barnabas_opens_kafkas_data(
    tmp_path_factory: pytest.TempPathFactory,
    java: Java,
    kafka_jars: Jars,
    zookeeper: ZooKeeper,
    end: str,
) -> None:
    directory = tmp_path_factory.mktemp(f"from-kafka-{end}")
    data = directory / "data"
    with kafka_on(directory, java, kafka_jars, zookeeper) as kafka:
        with Raw(kafka.bootstrap_servers) as raw:
            written = fill(raw)
        await_log_start(kafka.log_dir)
        if end == "stopped":
            kafka.stop()
        else:
            kafka.kill()
        shutil.copytree(kafka.log_dir, data / "broker-1")
    (data / "broker-1" / "meta.properties").unlink()
    broker = BrokerProcess(data, ADOPT)
    with broker, Raw(broker.bootstrap_servers) as raw:
        check(raw, written)
    after = BrokerProcess(data)  # now they are ordinary topics
    with after, Raw(after.bootstrap_servers) as raw:
        assert everything(raw)["codecs", 0] == written.found["codecs", 0]
        assert raw.list_offset("segments", -1).offset == 2 * BATCHES


def test_barnabas_continues_kafkas_groups(
    tmp_path: Path, java: Java, kafka_jars: Jars, zookeeper: ZooKeeper
) -> None:
    settings = {"group.id": "readers", "enable.auto.commit": False}
    wanted = [TopicPartition("read", partition) for partition in range(3)]
    with kafka_on(tmp_path, java, kafka_jars, zookeeper) as kafka:
        with Raw(kafka.bootstrap_servers) as raw:
            raw.create_topic("read", partitions=3)
            wait_until_loaded(raw, "readers")
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
        for offset in (1, 2):
            offsets = [TopicPartition("read", each, 10 * each + offset) for each in range(2)]
            consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()
        kafka.stop()
        shutil.copytree(kafka.log_dir, tmp_path / "data" / "broker-1")
    (tmp_path / "data" / "broker-1" / "meta.properties").unlink()
    with BrokerProcess(tmp_path / "data", ADOPT) as broker:
        with Raw(broker.bootstrap_servers) as raw:
            wait_until_loaded(raw, "readers")
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, **settings})
        found = consumer.committed(wanted, timeout=30)
        consumer.close()
    assert [each.offset for each in found] == [2, 12, OFFSET_INVALID]


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_kafka_opens_our_data(
    tmp_path_factory: pytest.TempPathFactory,
    java: Java,
    kafka_jars: Jars,
    zookeeper: ZooKeeper,
    end: str,
) -> None:
    directory = tmp_path_factory.mktemp(f"to-kafka-{end}")
    with BrokerProcess(directory / "data", START_CHECKPOINT_MS) as broker:
        with Raw(broker.bootstrap_servers) as raw:
            written = fill(raw)
        await_log_start(broker.log_dir)
        if end == "stopped":
            broker.stop()
        else:
            broker.kill()
        target = directory / "broker-1" / "logs"
        shutil.copytree(broker.log_dir, target)
    dump(target, Tools(release=KAFKA_3_9, java=java, jars=kafka_jars, scratch=directory))
    (target / "meta.properties").unlink()
    for path in target.glob("*/partition.metadata"):
        path.unlink()
    with (
        kafka_on(directory, java, kafka_jars, zookeeper) as kafka,
        Raw(kafka.bootstrap_servers) as raw,
    ):
        for name, (partitions, configs) in TOPICS.items():
            raw.create_topic(name, partitions=partitions, configs=configs)
        check(raw, written)


def dump(log_dir: Path, tools: Tools) -> None:
    """Check that every batch is valid, and that every index matches its segment."""
    files = [
        str(path)
        for suffix in ("log", "index", "timeindex", "snapshot")
        for path in sorted(log_dir.glob(f"*/*.{suffix}"))
        if path.stat().st_size
    ]
    assert len(files) > 20
    outcome = tools.succeed("kafka-dump-log", "--deep-iteration", "--files", ",".join(files))
    assert outcome.stdout.count("isvalid: true") > 100
    for fault in ("isvalid: false", "Mismatches in", "out of order", "not found in", "mismatch"):
        assert fault not in outcome.stdout + outcome.stderr, outcome.stdout[-3000:]
