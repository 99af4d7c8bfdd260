"""A stream with exactlyOnce=true survives repeated SIGKILLs of its driver, its Python workers, its executors, and the
broker, which is also its transaction coordinator. A read_committed reader finds every record once.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from barnabas import Client
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import latest_offsets
from barnabas.model import TopicPartition
from support.broker import BrokerProcess
from support.seed import choose_seed
from support.waiting import eventually
from tests.faults.raw_client import RawClient
from tests.processes import assert_ended
from tests.spark.standalone_cluster import bare_python, standalone_cluster
from tests.spark_faults.driver import EXACTLY_ONCE
from tests.spark_faults.executors import busy_executors
from tests.spark_faults.load import Load
from tests.spark_faults.stream_kills import (
    PARTITIONS,
    SINK,
    SOURCE,
    Other,
    Run,
    kill_repeatedly,
    kill_rounds,
    report,
    running,
)
from tests.spark_faults.stream_position import Moment, TopicStream

ROUNDS = kill_rounds(1)
WORKERS = 2
EXECUTOR_SPREAD_S = 2.0
"""The kill comes at most this long after both executors run tasks."""
SPREAD_S = {Moment.BEFORE: 0.25, Moment.DURING: 0.15, Moment.AFTER: 0.02}
"""DURING begins with the first written record. It includes the commit of the transactions in the driver."""


@pytest.mark.timeout(300 + 150 * ROUNDS)
def test_every_record_is_committed_once(tmp_path: Path, trained_spark: str) -> None:
    began = time.monotonic()
    chance = Random(choose_seed())
    with BrokerProcess(tmp_path / "data") as broker:
        create_topics(broker)
        stream = TopicStream(EXACTLY_ONCE, tmp_path / "topic-checkpoint", broker.log_dir, SINK)
        run = Run(broker, tmp_path, chance, {EXACTLY_ONCE: stream}, SPREAD_S)
        with running(run):
            load = kill_repeatedly(run, ROUNDS, began)
        copied = read_committed(broker)
        assert "Traceback" not in broker.log()
    report(run.tally, load, {"topic": copied}, time.monotonic() - began)
    assert copied == Counter(load.values())
    assert not run.tally.failures_after(Other.BROKER)


@pytest.mark.timeout(300 + 60 * ROUNDS)
def test_killed_executors_commit_every_record_once(tmp_path: Path, trained_spark: str) -> None:
    chance = Random(choose_seed())
    with (
        BrokerProcess(tmp_path / "data") as broker,
        standalone_cluster(tmp_path / "spark", WORKERS, trained_spark) as master,
    ):
        create_topics(broker)
        stream = TopicStream(EXACTLY_ONCE, tmp_path / "topic-checkpoint", broker.log_dir, SINK)
        python = str(bare_python(tmp_path / "python"))
        run = Run(
            broker,
            tmp_path,
            chance,
            {EXACTLY_ONCE: stream},
            master=master,
            python=python,
            java_options=trained_spark,
        )
        with running(run):
            with Load(broker.bootstrap_servers, SOURCE, run.read_by_all) as load:
                for _ in range(ROUNDS):
                    run.wait_for_progress()
                    kill_executor(run, chance)
                load.stop()
            run.wait(lambda: run.read_by_all() == load.sent, "the stream has read all input")
            run.driver.finish()
            assert not run.driver.failures()
        copied = read_committed(broker)
        assert "Traceback" not in broker.log()
    print(f"{ROUNDS} executors killed, {load.sent} records")
    assert copied == Counter(load.values())


def kill_executor(run: Run, chance: Random) -> None:
    run.wait(lambda: len(busy_executors()) == WORKERS, "tasks on both executors")
    time.sleep(chance.uniform(0.0, EXECUTOR_SPREAD_S))
    victim = chance.choice(busy_executors())
    workers = victim.children(recursive=True)
    victim.kill()
    assert_ended([victim, *workers])


def create_topics(broker: BrokerProcess) -> None:
    with RawClient(broker.address) as client:
        assert client.create_topic(SOURCE, PARTITIONS) == 0
        assert client.create_topic(SINK, PARTITIONS) == 0


def read_committed(broker: BrokerProcess) -> Counter[str]:
    """The values of all committed records. No transaction of the stream is open then."""
    partitions = [TopicPartition(SINK, number) for number in range(PARTITIONS)]
    servers = broker.bootstrap_servers
    with Cluster(servers) as cluster:
        eventually(
            lambda: (
                latest_offsets(cluster, partitions, committed=True)
                == latest_offsets(cluster, partitions)
            ),
            "the end of all transactions",
        )
    with Client(servers) as client:
        consumer = client.consumer(
            SINK, auto_offset_reset="earliest", isolation_level="read_committed"
        )
        with consumer:
            return Counter((record.value or b"").decode() for record in consumer.read_to_end())
