"""Kafka and Barnabas compact the same records: the remaining records are equal, and each reads the other's log."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.batch.compression import Compression
from barnabas.batch.header import batch_headers
from barnabas.batch.records import Record, build_batch
from barnabas.errors import ErrorCode
from barnabas.java.find import Java
from barnabas.storage.checkpoints import CLEANED_TO
from interop.harness.jars import KAFKA_3_9, Jars
from interop.harness.kafka import KafkaCluster
from interop.harness.tools import Tools
from interop.harness.zookeeper import ZooKeeper
from interop.test_data_directories import read_partition
from support.broker import BrokerProcess
from support.waiting import eventually
from tests.compatibility.raw import Raw

TOPIC = "compacted"
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "4000",
    "index.interval.bytes": "200",
    "min.cleanable.dirty.ratio": "0.01",
}
QUICK = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "100"}
BATCHES, PRODUCER_ID = 150, 4_711
# Kafka's tool reports every gap, and compaction creates gaps.
HOLES = re.compile(r"Non-consecutive offsets in \S+\n(  -?\d+ is followed by \d+\n)*")
Records = list[Record]


def batches() -> Iterator[bytes]:
    """Twenty keys in all codecs, some deleted, from an idempotent producer."""
    now_ms = int(time.time() * 1000)
    sequence = 0
    for number in range(BATCHES):
        rows = [
            Record(
                at,
                now_ms + number,
                b"key-%d" % ((number * 7 + at * 3) % 20),
                None if (number + at) % 11 == 0 else b"%d.%d" % (number, at) * 9,
                (("n", b"%d" % at),),
            )
            for at in range(1 + number % 6)
        ]
        is_numbered = number % 3 == 0
        yield build_batch(
            rows,
            compression=list(Compression)[number % 5],
            producer_id=PRODUCER_ID if is_numbered else -1,
            producer_epoch=0 if is_numbered else -1,
            base_sequence=sequence if is_numbered else -1,
        )
        sequence += len(rows) if is_numbered else 0


def fill_and_compact(raw: Raw, log_dir: Path, written: list[bytes]) -> Records:
    raw.create_topic(TOPIC, configs=CONFIGS)
    for data in written:
        assert raw.produce(TOPIC, data).error_code == ErrorCode.NONE
    eventually(lambda: is_clean(log_dir), "everything but the active segment is compacted", 60)
    return list(read_partition(raw, TOPIC, 0))


def is_clean(log_dir: Path) -> bool:
    active = max(int(path.stem) for path in (log_dir / f"{TOPIC}-0").glob("*.log"))
    checkpoint = log_dir / CLEANED_TO
    return checkpoint.exists() and f"{TOPIC} 0 {active}" in checkpoint.read_text().splitlines()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compaction")


@pytest.fixture(scope="module")
def written() -> list[bytes]:
    return list(batches())


@pytest.fixture(scope="module")
def our_compacted(directory: Path, written: list[bytes]) -> tuple[Path, Records]:
    """Our log directory after a clean stop, and the records that a reader found before."""
    with BrokerProcess(directory / "ours", QUICK) as broker:
        with Raw(broker.bootstrap_servers) as raw:
            left = fill_and_compact(raw, broker.log_dir, written)
        broker.stop()
        shutil.copytree(broker.log_dir, directory / "ours-stopped")
    return directory / "ours-stopped", left


@pytest.fixture(scope="module")
def kafka_compacted(
    directory: Path, written: list[bytes], java: Java, kafka_jars: Jars, zookeeper: ZooKeeper
) -> tuple[Path, Records]:
    with KafkaCluster(
        directory / "kafka", java=java, jars=kafka_jars, zookeeper=zookeeper, settings=QUICK
    ) as cluster:
        kafka = cluster.brokers[0]
        with Raw(kafka.bootstrap_servers) as raw:
            left = fill_and_compact(raw, kafka.log_dir, written)
        kafka.stop()
        shutil.copytree(kafka.log_dir, directory / "kafka-stopped")
    return directory / "kafka-stopped", left


def test_compaction_keeps_same_records(
    our_compacted: tuple[Path, Records], kafka_compacted: tuple[Path, Records], written: list[bytes]
) -> None:
    ours, theirs = our_compacted[1], kafka_compacted[1]
    assert ours == theirs
    total = sum(1 + number % 6 for number in range(BATCHES))
    assert 20 < len(ours) < total / 2
    assert any(record.value is None for record in ours), "tombstones are kept for a day"


def test_compaction_keeps_same_batches(
    our_compacted: tuple[Path, Records], kafka_compacted: tuple[Path, Records]
) -> None:
    def headers(log_dir: Path) -> list[tuple[object, ...]]:
        return [
            (
                header.base_offset,
                header.last_offset,
                header.count,
                header.attributes,
                header.max_timestamp,
                header.producer_id,
                header.base_sequence,
            )
            for path in sorted((log_dir / f"{TOPIC}-0").glob("*.log"))
            for _, header in batch_headers(path.read_bytes())
        ]

    assert headers(our_compacted[0]) == headers(kafka_compacted[0])


def test_kafka_dump_log_accepts_our_compacted_log(
    our_compacted: tuple[Path, Records], directory: Path, java: Java, kafka_jars: Jars
) -> None:
    log_dir, left = our_compacted
    tools = Tools(release=KAFKA_3_9, java=java, jars=kafka_jars, scratch=directory)
    files = [
        str(path)
        for suffix in ("log", "index", "timeindex", "snapshot")
        for path in sorted((log_dir / f"{TOPIC}-0").glob(f"*.{suffix}"))
        if path.stat().st_size
    ]
    dumped = tools.succeed("kafka-dump-log", "--deep-iteration", "--files", ",".join(files))
    assert HOLES.sub("", dumped.stderr) == ""
    assert "isvalid: false" not in dumped.stdout
    offsets = re.findall(r"^\| offset: (\d+) ", dumped.stdout, re.MULTILINE)
    assert [int(offset) for offset in offsets] == [record.offset for record in left]
    assert "deleteHorizonMs: " in dumped.stdout
    indexes = ",".join(name for name in files if name.endswith("index"))
    assert tools.succeed("kafka-dump-log", "--files", indexes, "--index-sanity-check").stderr == ""


def test_kafka_opens_our_compacted_log(
    our_compacted: tuple[Path, Records],
    directory: Path,
    java: Java,
    kafka_jars: Jars,
    zookeeper: ZooKeeper,
    written: list[bytes],
) -> None:
    source, left = our_compacted
    target = directory / "adopted" / "broker-1" / "logs"
    shutil.copytree(source, target)
    (target / "meta.properties").unlink()
    for path in target.glob("*/partition.metadata"):
        path.unlink()
    with (
        KafkaCluster(
            directory / "adopted", java=java, jars=kafka_jars, zookeeper=zookeeper, settings=QUICK
        ) as cluster,
        Raw(cluster.brokers[0].bootstrap_servers) as raw,
    ):
        raw.create_topic(TOPIC, configs=CONFIGS)
        check_log(raw, left, written)


def test_barnabas_opens_kafkas_compacted_log(
    kafka_compacted: tuple[Path, Records], directory: Path, written: list[bytes]
) -> None:
    source, left = kafka_compacted
    data = directory / "adopted-here"
    shutil.copytree(source, data / "broker-1")
    (data / "broker-1" / "meta.properties").unlink()
    broker = BrokerProcess(data, {**QUICK, "barnabas.adopt.logs": "true"})
    with broker, Raw(broker.bootstrap_servers) as raw:
        check_log(raw, left, written)


def check_log(raw: Raw, left: Records, written: list[bytes]) -> None:
    """Check for the same records, and that the last idempotent batch is known even if its records are gone."""
    assert list(read_partition(raw, TOPIC, 0)) == left
    last_numbered = max(number for number in range(BATCHES) if number % 3 == 0)
    end = raw.list_offset(TOPIC, -1).offset
    again = raw.produce(TOPIC, written[last_numbered])
    assert again.error_code == ErrorCode.NONE
    assert again.base_offset < end, "it was not written twice"
    assert raw.list_offset(TOPIC, -1).offset == end
