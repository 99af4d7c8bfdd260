"""A stopped broker exits soon, needs no recovery, and leaves no resources behind."""

from __future__ import annotations

import gc
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from barnabas import LocalCluster
from barnabas.storage.checkpoints import CLEAN_SHUTDOWN
from support.broker import BrokerProcess
from support.waiting import eventually
from tests.faults.raw_client import RawClient, fetch_frame

TOPIC = "orders"


class Writer(threading.Thread):
    """Writes records until the broker exits."""

    def __init__(self, broker: BrokerProcess, partition: int) -> None:
        super().__init__()
        self.client = RawClient(broker.address)
        self.partition = partition
        self.acknowledged = 0

    def run(self) -> None:
        with suppress(OSError), self.client:
            while self.client.produce(TOPIC, self.partition, b"x" * 300).error_code == 0:
                self.acknowledged += 1


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {"log.segment.bytes": "30000", "log.flush.interval.messages": "5"}
    with BrokerProcess(tmp_path / "data", settings) as running:
        with RawClient(running.address) as client:
            assert client.create_topic(TOPIC, 3) == 0
        yield running


def check_clean(broker: BrokerProcess, code: int) -> None:
    assert code == 0
    assert (broker.log_dir / CLEAN_SHUTDOWN).exists()
    log = broker.log()
    assert log.splitlines()[-1].endswith("broker stopped id=1")
    for word in ("Traceback", "Exception", "never retrieved", "never awaited"):
        assert word not in log
    broker.start()
    assert "clean=True" in broker.log()[len(log) :]
    assert not (broker.log_dir / CLEAN_SHUTDOWN).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_under_load_stops_cleanly_and_loses_nothing(
    broker: BrokerProcess, number: int
) -> None:
    for _ in range(3):
        writers = [Writer(broker, partition) for partition in range(3)]
        with RawClient(broker.address) as client:
            before = [client.end_offset(TOPIC, partition) for partition in range(3)]
        for writer in writers:
            writer.start()
        eventually(lambda: all(w.acknowledged > 30 for w in writers), "load")  # noqa: B023
        code = broker.stop(number)
        for writer in writers:
            writer.join()
        check_clean(broker, code)
        with RawClient(broker.address) as client:
            for writer in writers:
                kept = len(client.read_all(TOPIC, writer.partition)) - before[writer.partition]
                assert kept in (writer.acknowledged, writer.acknowledged + 1)


def test_long_polls_and_partial_requests_do_not_delay_stop(broker: BrokerProcess) -> None:
    waiting = [RawClient(broker.address) for _ in range(20)]
    for number, client in enumerate(waiting):
        if number % 2:
            client.send(fetch_frame(TOPIC, 0, 0, wait_ms=600_000))
        else:
            client.send(b"\x00\x00\x10\x00half")
    with RawClient(broker.address) as client:
        assert client.end_offset(TOPIC, 0) == 0
    began = time.monotonic()
    code = broker.stop()
    assert time.monotonic() - began < 5.0
    for client in waiting:
        assert client.is_hung_up()
        client.close()
    check_clean(broker, code)


def test_second_signal_while_stopping_is_harmless(broker: BrokerProcess) -> None:
    writer = Writer(broker, 0)
    writer.start()
    eventually(lambda: writer.acknowledged > 30, "load")
    for _ in range(3):
        broker.running.send_signal(signal.SIGTERM)
        broker.running.send_signal(signal.SIGINT)
    code = broker.wait()
    writer.join()
    check_clean(broker, code)


def test_client_disconnect_does_not_cancel_topic_creation(
    broker: BrokerProcess,
) -> None:
    with RawClient(broker.address) as seeing:
        for number in range(20):
            name = f"made-{number}"
            with RawClient(broker.address) as client, suppress(TimeoutError, BlockingIOError):
                client.socket.settimeout(0.0)
                client.create_topic(name, 3)  # sent, without waiting for the response
            eventually(
                lambda: all(
                    seeing.produce(name, partition, b"x").error_code == 0  # noqa: B023
                    for partition in range(3)
                ),
                f"{name} is complete",
            )
    assert "Traceback" not in broker.log()


def test_twenty_clusters_leak_no_threads_descriptors_or_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    process = psutil.Process()

    def counts() -> tuple[int, int]:
        gc.collect()
        return process.num_fds(), threading.active_count()

    def one_life() -> None:
        settings = {"log.flush.interval.messages": "1", "log.segment.bytes": "3000"}
        with LocalCluster(settings=settings) as cluster:
            host, _, port = cluster.bootstrap_servers.rpartition(":")
            with RawClient((host, int(port))) as client:
                assert client.create_topic(TOPIC, 3) == 0
                for number in range(30):
                    assert client.produce(TOPIC, 0, b"x" * 200).base_offset == number
                assert len(client.read_all(TOPIC, 0)) == 30

    one_life()
    descriptors, threads = counts()
    for _ in range(20):
        one_life()
    assert counts() <= (descriptors, threads)
    assert threading.active_count() <= threads
    assert list(tmp_path.iterdir()) == []


def test_failed_cluster_start_leaks_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    process = psutil.Process()
    descriptors, threads = process.num_fds(), threading.active_count()
    for _ in range(5):
        cluster = LocalCluster(settings={"log.dirs": str(tmp_path / "file" / "logs")})
        with pytest.raises(Exception, match="Not a directory"):
            cluster.start()
        assert not cluster.data.exists()
    gc.collect()
    assert process.num_fds() <= descriptors
    assert threading.active_count() <= threads


def test_idle_broker_uses_little_memory_and_cpu(broker: BrokerProcess) -> None:
    eventually(lambda: psutil.Process(broker.running.pid).cpu_percent(0.2) < 5, "settled")
    before, began = broker.cpu_seconds(), time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        broker.running.child.wait(5.0)
    share = (broker.cpu_seconds() - before) / (time.monotonic() - began)
    rss_mb = broker.rss_bytes() / (1 << 20)
    print(f"idle broker: {rss_mb:.1f} MB, {share * 100:.2f} % of a core")
    assert rss_mb < 60
    assert share < 0.01
