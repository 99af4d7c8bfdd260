"""The examples windows and join survive SIGKILL of their driver: the results are right after the next run.

BARNABAS_FAULT_ROUNDS sets the number of kills of each example (default 1; `make faults` uses 20). BARNABAS_SEED repeats
the moments of a run.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from barnabas import LocalCluster
from barnabas.spark import session
from support.process import ENVIRONMENT, ChildProcess
from support.seed import choose_seed
from tests.spark.topics import Topics

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
ROUNDS = int(os.environ.get("BARNABAS_FAULT_ROUNDS") or 1)
START_SECONDS = 120.0
SPREAD_S = 4.0
"""The kill comes at most this long after the example has written its first checkpoint of a run."""
USERS = 3
EVENTS = 60
"""Events of each round: one per second, which is one minute."""
DEADLINE_S = 180


@pytest.fixture(scope="module")
def topics(trained_spark: str) -> Iterator[Topics]:
    is_new = SparkSession.getActiveSession() is None
    spark = session("local[2]", short=True, progress=False)
    spark.sparkContext.setLogLevel("OFF")
    settings = {"auto.create.topics.enable": "false", "log.retention.ms": "-1"}
    with LocalCluster(brokers=1, settings=settings) as cluster:
        yield Topics(spark, cluster.bootstrap_servers)
    if is_new:
        spark.stop()


def at(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_700_000_040 + second))


def load(name: str) -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(EXAMPLES / f"{name}.py")))


def run_and_kill(name: str, topics: Topics, directory: Path, chance: Random) -> None:
    """Start an example as a user does, and kill it and its JVM when it has written to its checkpoint."""
    environment = {**ENVIRONMENT, "BARNABAS_BOOTSTRAP_SERVERS": topics.servers}
    began_ns = time.time_ns()
    process = ChildProcess(
        name,
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        log=directory / f"{name}.log",
        directory=directory,
        environment=environment,
        is_isolated=True,
    )
    deadline = time.monotonic() + START_SECONDS
    while not has_planned_a_batch(directory, began_ns):
        assert process.is_running, process.describe()
        assert time.monotonic() < deadline, process.describe()
        time.sleep(0.01)
    time.sleep(chance.uniform(0, SPREAD_S))
    assert process.is_running, process.describe()
    process.kill()


def has_planned_a_batch(directory: Path, began_ns: int) -> bool:
    return any(
        path.stat().st_mtime_ns > began_ns for path in list(directory.glob("*/*/offsets/[0-9]*"))
    )


@pytest.mark.timeout(300 + 60 * ROUNDS)
def test_windows_are_counted_once(topics: Topics, tmp_path: Path) -> None:
    chance = Random(choose_seed())
    for name in ("clicks", "clicks-per-minute"):
        topics.create(name, partitions=2, mark=False)
    expected: Counter[tuple[str, str]] = Counter()
    for number in range(ROUNDS):
        clicks = [(f"u{second % USERS}", second + 60 * number) for second in range(EVENTS)]
        expected.update((user, at(second - second % 60)) for user, second in clicks)
        topics.write("clicks", [json.dumps({"user": user, "at": at(s)}) for user, s in clicks])
        run_and_kill("windows", topics, tmp_path, chance)
    topics.write("clicks", [json.dumps({"user": "end", "at": at(60 * ROUNDS + 600)})])
    example = load("windows")
    for query in example.start(
        topics.spark, tmp_path / "clicks", topics.servers, availableNow=True
    ):
        assert query.awaitTermination(DEADLINE_S)
    minutes = "date_format(minute, \"yyyy-MM-dd'T'HH:mm:ss'Z'\")"
    table = topics.spark.read.parquet(str(tmp_path / "clicks" / "minutes"))
    rows = table.selectExpr("user", minutes, "clicks").collect()
    assert sorted((user, minute, count) for user, minute, count in rows) == sorted(
        (user, minute, count) for (user, minute), count in expected.items()
    )
    last = {
        record.key: json.loads(record.value or b"")["clicks"]
        for records in topics.records("clicks-per-minute").values()
        for record in records
    }
    assert Counter(last.values()) == Counter(expected.values())
    assert len(last) == len(expected)


@pytest.mark.timeout(300 + 60 * ROUNDS)
def test_orders_are_joined(topics: Topics, tmp_path: Path) -> None:
    chance = Random(choose_seed())
    for name in ("orders", "payments", "paid-orders"):
        topics.create(name, partitions=2, mark=False)
    for number in range(ROUNDS):
        seconds = range(60 * number, 60 * number + EVENTS)
        orders = [{"order": second, "item": f"i{second}", "at": at(second)} for second in seconds]
        payments = [{"order": s, "amount": s * 2, "at": at(s + 30)} for s in seconds]
        topics.write("orders", [json.dumps(each) for each in orders])
        run_and_kill("join", topics, tmp_path, chance)
        topics.write("payments", [json.dumps(each) for each in payments])
    example = load("join")
    query = example.start(topics.spark, tmp_path / "orders", topics.servers, availableNow=True)
    assert query.awaitTermination(DEADLINE_S)
    found = [
        json.loads(record.value or b"")
        for records in topics.records("paid-orders").values()
        for record in records
    ]
    paid = {each["order"]: (each["item"], each["amount"]) for each in found}
    assert paid == {second: (f"i{second}", second * 2) for second in range(60 * ROUNDS)}
