"""SIGKILL of a broker process at random moments, repeatedly on the same data: acknowledged records stay, once each."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import KafkaError, Message, Producer

from barnabas.errors import ErrorCode
from support.broker import BrokerProcess
from support.seed import choose_seed
from support.waiting import eventually
from tests.faults.raw_client import RawClient, produce_frame

BROKERS = 2
"""Brokers run in parallel, because most of a round is waiting."""
ROUNDS = 25
PARTITIONS = 4
TOPIC = "orders"
IN_FLIGHT_MAX = 2000


class Load:
    """An idempotent producer that never stops, and its delivery reports."""

    def __init__(self, servers: str) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 50,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self.sent = [0] * PARTITIONS
        self.acknowledged: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
        self.failed: list[str] = []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.stopping.is_set():
            for partition in range(PARTITIONS):
                value = b"%d-%d-" % (partition, self.sent[partition]) + b"x" * 200
                self.producer.produce(
                    TOPIC, value, partition=partition, on_delivery=self.on_delivery
                )
                self.sent[partition] += 1
            self.producer.poll(0.001 if len(self.producer) < IN_FLIGHT_MAX else 0.1)

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        self.acknowledged[partition][offset] = value

    def count(self) -> int:
        return sum(map(len, self.acknowledged))

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join()


@pytest.mark.timeout(240)
def test_fifty_kills_lose_and_duplicate_nothing(tmp_path: Path) -> None:
    seed = choose_seed()
    with ThreadPoolExecutor(BROKERS) as pool:
        for ended in [
            pool.submit(kill_repeatedly, tmp_path / f"data-{number}", Random(seed + number))
            for number in range(BROKERS)
        ]:
            ended.result()


def kill_repeatedly(data: Path, chance: Random) -> None:
    broker = BrokerProcess(data, {"log.segment.bytes": "60000", "log.index.interval.bytes": "1000"})
    with broker:
        with RawClient(broker.address) as client:
            assert client.create_topic(TOPIC, PARTITIONS) == 0
        load = Load(broker.bootstrap_servers)
        load.thread.start()
        try:
            for round_number in range(ROUNDS):
                before = load.count()
                eventually(
                    lambda: load.count() > before,  # noqa: B023 - evaluated at once
                    f"an acknowledgement in round {round_number}",
                    30.0,
                )
                time.sleep(chance.uniform(0.0, 0.4))
                broker.kill()
                broker.start()
        finally:
            load.stop()
        assert load.producer.flush(60) == 0
        assert not load.failed, Counter(load.failed)
        assert "Traceback" not in broker.log()
        with RawClient(broker.address) as client:
            for partition in range(PARTITIONS):
                found = client.read_all(TOPIC, partition)
                values = [record.value for record in found]
                assert len(set(values)) == len(values), f"duplicate record in partition {partition}"
                for offset, value in load.acknowledged[partition].items():
                    assert values[offset] == value
                numbers = [int(value.split(b"-")[1]) for value in values if value is not None]
                assert numbers == list(range(load.sent[partition]))
        segments = len(list((broker.log_dir / f"{TOPIC}-0").glob("*.log")))
    print(f"rounds={ROUNDS} acknowledged={load.count()} segments of one partition={segments}")
    assert segments > 5


@pytest.mark.timeout(120)
def test_kill_during_topic_changes_leaves_no_partial_topic(tmp_path: Path) -> None:
    chance = Random(choose_seed())
    with BrokerProcess(tmp_path / "data") as broker:
        exists: dict[str, bool | None] = {}  # None: the broker was killed before it responded
        for life in range(15):
            workers = [TopicWorker(broker, f"life{life}-{n}", exists) for n in range(3)]
            for worker in workers:
                worker.start()
            done = len(exists)
            eventually(lambda: len(exists) >= done + 3, "topics are created", 30.0)  # noqa: B023
            time.sleep(chance.uniform(0.0, 0.15))
            broker.kill()
            for worker in workers:
                worker.join()
            broker.start()
            check_topics(broker, exists)
        assert "Traceback" not in broker.log()
        counts = Counter(exists.values())
    print(f"topics left={counts[True]} deleted={counts[False]}")


class TopicWorker(threading.Thread):
    """Creates topics and deletes every other one until the broker exits."""

    def __init__(self, broker: BrokerProcess, prefix: str, exists: dict[str, bool | None]) -> None:
        super().__init__()
        self.client = RawClient(broker.address)
        self.prefix = prefix
        self.exists = exists

    def run(self) -> None:
        try:
            for number in range(1_000_000):
                name = f"{self.prefix}-{number}"
                self.exists[name] = None
                assert self.client.create_topic(name, 3) == 0
                self.exists[name] = True
                if number % 2:
                    self.exists[name] = None
                    assert self.client.delete_topic(name) == 0
                    self.exists[name] = False
        except OSError:
            self.client.close()


def check_topics(broker: BrokerProcess, exists: dict[str, bool | None]) -> None:
    """Check that confirmed changes hold, and that every other topic exists completely or not at all."""
    served: dict[str, int] = {}
    with RawClient(broker.address) as client:
        for name, expected in exists.items():
            client.send(b"".join(produce_frame(name, index, [b"x"]) for index in range(3)))
            answers = [client.produced().error_code for _ in range(3)]
            assert answers in (
                [ErrorCode.NONE] * 3,
                [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3,
            ), f"{name} exists partially: {answers}"
            exists_now = answers[0] == ErrorCode.NONE
            assert expected is None or expected == exists_now, (
                f"{name}: {expected}, now {exists_now}"
            )
            exists[name] = exists_now
            if exists_now:
                served[name] = 3
    on_disk = Counter(
        path.name.rpartition("-")[0]
        for path in broker.log_dir.iterdir()
        if path.is_dir() and not path.name.endswith("-delete")
    )
    assert on_disk == served
