"""One of two log directories turns read-only while the broker runs: what is on the other goes on, and all is back after
a start on a disk that works."""

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
    # Who only writes to files that are open meets no read-only disk; what is written by the clock does.
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.initial.task.delay.ms": "0",
}


def test_what_is_on_the_other_directory_goes_on(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    settings = {"log.dirs": f"{one},{other}", **SETTINGS}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        with Raw(broker.bootstrap_servers) as raw:
            raw.create_topic(TOPIC, partitions=PARTITIONS)
            assert produced(raw) == dict.fromkeys(range(PARTITIONS), ErrorCode.NONE)
            on_one = {int(path.name.rpartition("-")[2]) for path in one.glob(f"{TOPIC}-*")}
            assert 0 < len(on_one) < PARTITIONS
            with read_only(one):
                eventually(lambda: errors(raw)[str(one)] != ErrorCode.NONE, "it is noticed", 30)
                assert errors(raw) == {
                    str(one): ErrorCode.KAFKA_STORAGE_ERROR,
                    str(other): ErrorCode.NONE,
                }
                assert produced(raw) == {
                    index: ErrorCode.KAFKA_STORAGE_ERROR if index in on_one else ErrorCode.NONE
                    for index in range(PARTITIONS)
                }
                # It was the only replica: nobody else can lead, and the controller says so.
                eventually(lambda: leaderless(raw) == on_one, "the controller was told", 30)
                assert f"log directory is offline path={one} error=" in broker.log()
                assert "Read-only file system" in broker.log()
                broker.stop()
        broker.start()
        with Raw(broker.bootstrap_servers) as raw:
            eventually(lambda: not leaderless(raw), "all are led", 30)
            assert produced(raw) == dict.fromkeys(range(PARTITIONS), ErrorCode.NONE)
            assert raw.fetch(TOPIC, 0).high_watermark == (2 if 0 in on_one else 3)


def produced(raw: Raw) -> dict[int, ErrorCode]:
    """One more record to each."""
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
