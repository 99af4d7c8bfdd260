"""One of two log directories turns read-only while the broker runs: partitions on the other continue, and all are back
after a restart with a working disk."""

from __future__ import annotations

from pathlib import Path

from barnabas.errors import ErrorCode
from barnabas.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from support.broker import BrokerProcess
from support.waiting import eventually
from tests.compatibility.raw import Raw, recent_batch_of
from tests.faults.volumes import read_only

TOPIC = "orders"
PARTITIONS = 4
SETTINGS = {
    "num.partitions": str(PARTITIONS),
    "log.retention.ms": "-1",
    # Writes to open files still succeed on a read-only disk. The periodic checkpoints detect it.
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.initial.task.delay.ms": "0",
}


def test_partitions_on_other_directory_continue(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    settings = {"log.dirs": f"{one},{other}", **SETTINGS}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        with Raw(broker.bootstrap_servers) as raw:
            raw.create_topic(TOPIC, partitions=PARTITIONS)
            assert produce_to_each(raw) == dict.fromkeys(range(PARTITIONS), ErrorCode.NONE)
            on_one = {int(path.name.rpartition("-")[2]) for path in one.glob(f"{TOPIC}-*")}
            assert 0 < len(on_one) < PARTITIONS
            with read_only(one):
                eventually(lambda: errors(raw)[str(one)] != ErrorCode.NONE, "it is detected", 30)
                assert errors(raw) == {
                    str(one): ErrorCode.KAFKA_STORAGE_ERROR,
                    str(other): ErrorCode.NONE,
                }
                assert produce_to_each(raw) == {
                    index: ErrorCode.KAFKA_STORAGE_ERROR if index in on_one else ErrorCode.NONE
                    for index in range(PARTITIONS)
                }
                # It was the only replica: no other broker can lead, and the controller reports it.
                eventually(lambda: leaderless(raw) == on_one, "the controller knows", 30)
                assert f"log directory is offline path={one} error=" in broker.log()
                assert "Read-only file system" in broker.log()
                broker.stop()
        broker.start()
        with Raw(broker.bootstrap_servers) as raw:
            eventually(lambda: not leaderless(raw), "all partitions have leaders", 30)
            assert produce_to_each(raw) == dict.fromkeys(range(PARTITIONS), ErrorCode.NONE)
            assert raw.fetch(TOPIC, 0).high_watermark == (2 if 0 in on_one else 3)


def produce_to_each(raw: Raw) -> dict[int, ErrorCode]:
    """Produce one record to each partition; returns the error codes."""
    return {
        index: ErrorCode(raw.produce(TOPIC, recent_batch_of(b"x"), partition=index).error_code)
        for index in range(PARTITIONS)
    }


def errors(raw: Raw) -> dict[str, ErrorCode]:
    answer = raw.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    return {found.log_dir: ErrorCode(found.error_code) for found in answer.results}


def leaderless(raw: Raw) -> set[int]:
    request = MetadataRequest(topics=(MetadataRequestTopic(name=TOPIC),))
    (topic,) = raw.ask(request, MetadataResponse).topics
    return {each.partition_index for each in topic.partitions if each.leader_id == -1}
