"""kafka-dump-log on our files: it reads them like Kafka, and reports every fault on standard error."""

from __future__ import annotations

import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from interop.harness.tools import Outcome, Tools
from support.broker import BrokerProcess
from tests.compatibility.raw import Raw

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS_PER_CODEC = 400
TOPIC = "letters"
# Many segments, with many entries in each index.
SETTINGS = {"log.segment.bytes": "32768", "log.index.interval.bytes": "512"}
# Kafka 4.3's tool expects every file to begin at offset 0, and reports this for Kafka's own files as well.
FIRST_OF_A_FILE = re.compile(
    r"Non-consecutive offsets in \S+/0*(\d+)\.log\n  -1 is followed by \1\n"
)
STATES = ("running", "recovered", "stopped")


@pytest.fixture(scope="module")
def partitions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One partition's directory while the broker ran, after a SIGKILL and recovery, and after a clean stop."""
    directory = tmp_path_factory.mktemp("dumped")
    found = {}

    def keep(state: str) -> None:
        found[state] = directory / state / f"{TOPIC}-0"
        shutil.copytree(broker.log_dir / f"{TOPIC}-0", found[state])

    with BrokerProcess(directory / "data", SETTINGS) as broker:
        with Raw(broker.bootstrap_servers) as raw:
            raw.create_topic(TOPIC)
        for codec in CODECS:
            produce(broker.bootstrap_servers, codec)
        keep("running")
        broker.kill()
        broker.start()
        keep("recovered")
        broker.stop(signal.SIGTERM)
        keep("stopped")
    return found


def produce(servers: str, codec: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "compression.type": codec,
            "batch.num.messages": 20,
        }
    )
    for number in range(RECORDS_PER_CODEC):
        key, value = f"key-{number % 7}", f"{codec} {number} {hash((codec, number)):x}" * 3
        producer.produce(TOPIC, value, key=key, headers={"codec": codec}, partition=0)
    assert producer.flush(30) == 0


def dump(tools: Tools, files: list[Path], *arguments: str) -> Outcome:
    names = ",".join(str(path) for path in files)
    return tools.succeed("kafka-dump-log", "--files", names, *arguments)


def files_of(partition: Path, *suffixes: str) -> list[Path]:
    found = sorted(path for path in partition.iterdir() if path.suffix in suffixes)
    assert found, f"no file ends with {suffixes}: {sorted(partition.iterdir())}"
    return found


@pytest.mark.parametrize("state", STATES)
def test_kafka_dump_log_reads_all_our_records(
    tools: Tools, partitions: dict[str, Path], state: str
) -> None:
    logs = files_of(partitions[state], ".log")
    assert len(logs) > 3
    dumped = dump(tools, logs, "--deep-iteration", "--print-data-log")
    assert FIRST_OF_A_FILE.sub("", dumped.stderr) == ""
    offsets = [
        int(offset) for offset in re.findall(r"^\| offset: (\d+) ", dumped.stdout, re.MULTILINE)
    ]
    assert offsets == list(range(len(CODECS) * RECORDS_PER_CODEC))
    batches = re.findall(
        r"^baseOffset: .*compresscodec: (\w+) .*isvalid: (\w+)", dumped.stdout, re.MULTILINE
    )
    assert {codec.lower() for codec, _ in batches} == set(CODECS)
    assert {valid for _, valid in batches} == {"true"}


@pytest.mark.parametrize("state", STATES)
def test_kafka_dump_log_accepts_our_indexes_and_snapshots(
    tools: Tools, partitions: dict[str, Path], state: str
) -> None:
    indexes = files_of(partitions[state], ".index", ".timeindex")
    entries = dump(tools, indexes)
    assert entries.stderr == ""
    assert len(re.findall(r"^offset: \d+ position: \d+$", entries.stdout, re.MULTILINE)) > 20
    assert len(re.findall(r"^timestamp: \d+ offset: \d+$", entries.stdout, re.MULTILINE)) > 3
    assert dump(tools, indexes, "--verify-index-only").stderr == ""

    snapshots = dump(tools, files_of(partitions[state], ".snapshot"))
    assert snapshots.stderr == ""
    assert re.search(
        r"^producerId: \d+ producerEpoch: 0 .*lastSequence: \d+", snapshots.stdout, re.MULTILINE
    )


@pytest.mark.parametrize("state", STATES)
def test_our_indexes_pass_kafkas_sanity_check(
    tools: Tools, partitions: dict[str, Path], state: str
) -> None:
    indexes = files_of(partitions[state], ".index", ".timeindex")
    checked = dump(tools, indexes, "--index-sanity-check")
    assert checked.stderr == ""
    passed = checked.stdout.count(" passed sanity check.")
    assert passed + checked.stdout.count(" is empty.") == len(indexes)
    assert passed > len(indexes) / 2


def test_kafka_dump_log_reports_faults(
    tools: Tools, partitions: dict[str, Path], tmp_path: Path
) -> None:
    spoilt = shutil.copytree(partitions["stopped"], tmp_path / f"{TOPIC}-0")
    index = spoilt / f"{0:020}.index"
    log = index.with_suffix(".log")
    index.write_bytes(index.read_bytes()[:3] + b"\x01" + index.read_bytes()[4:])
    log.write_bytes(log.read_bytes()[:-1] + b"\x00\xff"[log.read_bytes()[-1] == 0 :][:1])
    dumped = dump(tools, [index, log])
    assert "Mismatches in" in dumped.stderr
    assert "isvalid: false" in dumped.stdout


def test_kafka_dump_log_decodes_our_group_records(tools: Tools, tmp_path: Path) -> None:
    settings = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        with Raw(broker.bootstrap_servers) as raw:
            raw.create_topic(TOPIC, partitions=2)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "readers",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([TOPIC])
        deadline = time.monotonic() + 60
        while len(consumer.assignment()) < 2:
            assert time.monotonic() < deadline, "the group got no partitions"
            consumer.poll(0.1)
        consumer.commit(
            offsets=[TopicPartition(TOPIC, 1, 42, metadata="a note")], asynchronous=False
        )
        consumer.close()
        broker.stop(signal.SIGTERM)
        logs = files_of(broker.log_dir / "__consumer_offsets-0", ".log")
        dumped = dump(tools, logs, "--offsets-decoder")
    assert dumped.stderr == ""
    shown = [line for line in dumped.stdout.splitlines() if "payload: " in line]
    (committed,) = [line for line in shown if '"partition":1' in line]
    # The metadata ends with a zero byte, which the client sends.
    for part in ('"group":"readers"', f'"topic":"{TOPIC}"', '"offset":42', '"metadata":"a note'):
        assert part in committed, committed
    generations = [line for line in shown if '"protocolType":"consumer"' in line]
    assert any('"clientId":"rdkafka"' in line for line in generations), shown
    assert '"members":[]' in generations[-1], "the last member has left"
