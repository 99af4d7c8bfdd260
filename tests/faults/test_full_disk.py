"""A full disk is not a failed disk: produce is rejected until there is space again, everything else continues."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.errors import ErrorCode
from support.broker import BrokerProcess
from support.waiting import eventually
from tests.faults.raw_client import RawClient
from tests.faults.volumes import small_volume

TOPIC = "orders"
RECORD = b"x" * 50_000
CHECKPOINTS = {
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.initial.task.delay.ms": "0",
}


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    with small_volume(tmp_path / "volume", "8m") as path:
        yield path


def fill(volume: Path) -> Path:
    """Fill the volume completely."""
    filler = volume / "filler"
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT)
    try:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while os.write(descriptor, bytes(size)):
                    continue
            except OSError:
                continue
    finally:
        os.close(descriptor)
    return filler


def test_full_disk_rejects_produce_until_there_is_space(tmp_path: Path, volume: Path) -> None:
    settings = {"log.dirs": str(volume / "logs"), "log.segment.bytes": "200000", **CHECKPOINTS}
    with (
        BrokerProcess(tmp_path / "data", settings) as broker,
        RawClient(broker.address) as client,
    ):
        assert client.create_topic(TOPIC) == 0
        for number in range(10):
            assert client.produce(TOPIC, 0, RECORD).base_offset == number
        filler = fill(volume)
        refused = client.produce(TOPIC, 0, RECORD)
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "space" in (refused.error_message or "")
        assert len(client.read_all(TOPIC, 0)) == 10
        # The periodic checkpoints find no space either.
        eventually(lambda: "log directory is full" in broker.log(), "a checkpoint fails")
        assert client.produce(TOPIC, 0, RECORD).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(client.read_all(TOPIC, 0)) == 10
        filler.unlink()
        assert client.produce(TOPIC, 0, RECORD).base_offset == 10
        assert len(client.read_all(TOPIC, 0)) == 11
        assert broker.log().count("log directory is full") == 1
        assert broker.stop() == 0
        assert (volume / "logs" / ".kafka_cleanshutdown").exists()


def test_full_disk_affects_only_its_own_partitions(tmp_path: Path, volume: Path) -> None:
    full, roomy = volume / "logs", tmp_path / "logs"
    settings = {"log.dirs": f"{full},{roomy}"}
    with (
        BrokerProcess(tmp_path / "data", settings) as broker,
        RawClient(broker.address) as client,
    ):
        for name in ("one", "two"):
            assert client.create_topic(name) == 0
            assert client.produce(name, 0, RECORD).base_offset == 0
        (there,) = full.glob("*-0")
        (elsewhere,) = roomy.glob("*-0")
        filler = fill(volume)
        refused = client.produce(there.name[:-2], 0, RECORD)
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert client.produce(elsewhere.name[:-2], 0, RECORD).base_offset == 1
        filler.unlink()
        assert client.produce(there.name[:-2], 0, RECORD).base_offset == 1


def test_stop_on_full_disk_is_not_clean(tmp_path: Path, volume: Path) -> None:
    settings = {"log.dirs": str(volume / "logs")}
    broker = BrokerProcess(tmp_path / "data", settings)
    with broker:
        with RawClient(broker.address) as client:
            assert client.create_topic(TOPIC) == 0
            for number in range(10):
                assert client.produce(TOPIC, 0, RECORD).base_offset == number
        filler = fill(volume)
        broker.stop()
        assert not (volume / "logs" / ".kafka_cleanshutdown").exists()
        assert "Traceback" not in broker.log()
        filler.unlink()
        broker.start()
        with RawClient(broker.address) as client:
            assert [record.value for record in client.read_all(TOPIC, 0)] == [RECORD] * 10
            assert client.produce(TOPIC, 0, RECORD).base_offset == 10


def test_full_registry_disk_rejects_topics_and_serves_data(
    volume: Path,
) -> None:
    with (
        BrokerProcess(volume / "data") as broker,
        RawClient(broker.address) as client,
    ):
        assert client.create_topic(TOPIC) == 0
        assert client.produce(TOPIC, 0, RECORD).base_offset == 0
        filler = fill(volume)
        assert client.create_topic("another") == ErrorCode.UNKNOWN_SERVER_ERROR
        assert client.produce(TOPIC, 0, RECORD).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(client.read_all(TOPIC, 0)) == 1
        filler.unlink()
        assert client.produce(TOPIC, 0, RECORD).base_offset == 1
        assert "the registry has failed permanently" in broker.log()
        assert broker.stop() == 0
        assert "Traceback" not in broker.log()
        broker.start()
        with RawClient(broker.address) as again:
            assert len(again.read_all(TOPIC, 0)) == 2
            assert again.create_topic("one-more") == 0
