"""SIGKILL of a broker process while replicas move between its log directories. The moves continue after the restart,
and no acknowledged record is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from barnabas.client.cluster import Cluster
from barnabas.client.log_dir_admin import LogDirAdmin
from barnabas.errors import BarnabasError
from barnabas.model import TopicPartition as Partition
from support.broker import BrokerProcess
from support.seed import choose_seed
from support.waiting import eventually
from tests.compatibility.raw import Raw

TOPIC = "orders"
PARTITIONS = 2
KILLS = 8
DEADLINE_S = 60
SETTINGS = {
    "log.retention.ms": "-1",
    "log.segment.bytes": "200000",
    "replica.high.watermark.checkpoint.interval.ms": "200",
}
THROTTLED = {"replica.alter.log.dirs.io.max.bytes.per.second": "2000000"}


class Load:
    """An idempotent producer that never stops, and the records that the broker acknowledged."""

    def __init__(self, servers: str) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 100,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self.acknowledged: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
        self.failed: list[str] = []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            value = b"%d-" % number + b"x" * 300
            self.producer.produce(
                TOPIC, value, partition=number % PARTITIONS, on_delivery=self.on_delivery
            )
            number += 1
            self.producer.poll(0.001 if len(self.producer) < 1000 else 0.05)

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        self.acknowledged[partition][offset] = value

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join()
        self.producer.flush(DEADLINE_S)


@contextmanager
def running_load(servers: str) -> Iterator[Load]:
    load = Load(servers)
    load.thread.start()
    try:
        yield load
    finally:
        load.stop()


def read_all(servers: str, partition: int, count: int) -> dict[int, bytes]:
    """Read `count` records, or fewer if the log has fewer."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "check", "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    found: dict[int, bytes] = {}
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=1.0):
            offset, value = message.offset(), message.value()
            assert message.error() is None
            assert offset is not None
            assert isinstance(value, bytes)
            found[offset] = value
    consumer.close()
    return found


def logs_by_directory(servers: str) -> dict[str, list[tuple[Partition, bool]]]:
    """The partition of each log, and whether it is a future log, by directory."""
    with Cluster(servers) as client:
        (views,) = LogDirAdmin(client).describe_log_dirs([1]).values()
    return {
        view.path: [
            (log.partition, log.is_future) for log in view.logs if log.partition.topic == TOPIC
        ]
        for view in views
    }


def move_all(servers: str, directory: str) -> None:
    """Move all partitions to the directory. A broker that is starting is retried."""

    def is_accepted() -> bool:
        wanted = {(TOPIC, index, 1): directory for index in range(PARTITIONS)}
        try:
            with Cluster(servers) as client:
                results = LogDirAdmin(client).alter_replica_log_dirs(wanted)
        except BarnabasError:
            return False
        return set(results.values()) == {None}

    eventually(is_accepted, "the move begins", DEADLINE_S)


def is_in(servers: str, directory: str) -> bool:
    found = logs_by_directory(servers)
    expected = [(Partition(TOPIC, index), False) for index in range(PARTITIONS)]
    return sorted(found.pop(directory)) == expected and not any(found.values())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("settings", [{}, THROTTLED], ids=["unlimited", "throttled"])
def test_kills_during_moves_lose_nothing(tmp_path: Path, settings: dict[str, str]) -> None:
    random = Random(choose_seed())
    paths = [str(tmp_path / name) for name in ("one", "two", "three")]
    all_settings = {**SETTINGS, **settings, "log.dirs": ",".join(paths)}
    with BrokerProcess(tmp_path / "data", all_settings) as broker:
        servers = broker.bootstrap_servers
        with Raw(servers) as raw:
            raw.create_topic(TOPIC, partitions=PARTITIONS)
        with running_load(servers) as load:
            for kill in range(KILLS):
                move_all(servers, paths[kill % len(paths)])
                time.sleep(random.uniform(0, 0.5))
                broker.kill()
                broker.start()
        assert not load.failed
        assert all(load.acknowledged)
        last = paths[(KILLS - 1) % len(paths)]
        eventually(lambda: is_in(servers, last), "the last move ends", DEADLINE_S)
        for index, acknowledged in enumerate(load.acknowledged):
            found = read_all(servers, index, len(acknowledged))
            assert {offset: found.get(offset) for offset in acknowledged} == acknowledged
            assert len(set(found.values())) == len(found), "no record is stored twice"
    assert not [name for path in paths for name in Path(path).glob("*-stray")]
    assert not [name for path in paths for name in Path(path).glob("*-future")]


def test_kill_during_move_resumes_copy(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("one", "two")]
    slow = {"replica.alter.log.dirs.io.max.bytes.per.second": "50000"}
    settings = {**SETTINGS, **slow, "log.dirs": ",".join(paths)}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        servers = broker.bootstrap_servers
        with Raw(servers) as raw:
            raw.create_topic(TOPIC, partitions=PARTITIONS)
        load = Load(servers)
        load.thread.start()
        eventually(lambda: all(len(each) > 1000 for each in load.acknowledged), "records", 60)
        load.stop()
        move_all(servers, paths[1])
        moving = [tp for tp, is_future in logs_by_directory(servers)[paths[1]] if is_future]
        (future,) = Path(paths[1]).glob("*-future")

        def copied_bytes() -> int:
            return sum(path.stat().st_size for path in future.glob("*.log"))

        eventually(lambda: copied_bytes() > 0, "the copy has begun", DEADLINE_S)
        broker.kill()
        before = copied_bytes()
        assert before > 0
        broker.start()
        assert [tp for tp, is_future in logs_by_directory(servers)[paths[1]] if is_future] == moving
        eventually(lambda: copied_bytes() > before, "the copy continues", DEADLINE_S)
        assert "move resumed" in broker.log()
        for index, acknowledged in enumerate(load.acknowledged):
            assert read_all(servers, index, len(acknowledged)) == acknowledged
