"""Cost of clusters in tests: start-up of LocalCluster, fixtures per test, and the start of Apache Kafka's broker."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import barnabas
from barnabas import LocalCluster
from benchmarks.broker import environment_with_bytecode
from benchmarks.kafka_process import START_SCRIPT
from benchmarks.report import spread

TESTS = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_{kind}({fixtures}, number):
    pass
"""
CONFTEST = """
import json

phases = []

def pytest_runtest_logreport(report):
    phases.append((report.nodeid, report.duration))

def pytest_unconfigure():
    with open("durations.json", "w") as file:
        json.dump(phases, file)
"""
TOPIC_TESTS = 50
FRESH_TESTS = 10
Found = dict[str, list[float]]


def measure(repeat: int, *, with_kafka: bool) -> Found:
    """Measure in seconds. The first start of a process is not counted: it imports modules."""
    found: Found = {}
    for brokers in (1, 3):
        time_local_cluster(brokers)
        times = [time_local_cluster(brokers) for _ in range(repeat)]
        found[f"LocalCluster, brokers={brokers}: start"] = [start for start, _ in times]
        found[f"LocalCluster, brokers={brokers}: stop"] = [stop for _, stop in times]
    found["test with barnabas_topic on three brokers"] = time_tests(
        "topic", "barnabas_cluster, barnabas_topic", TOPIC_TESTS
    )
    found["test with barnabas_fresh_cluster of three brokers"] = time_tests(
        "fresh", "barnabas_fresh_cluster", FRESH_TESTS
    )
    command = [sys.executable, "-m", "barnabas", "up", "--ephemeral", "--brokers=3", "--", "true"]
    found["barnabas up --ephemeral --brokers 3 -- true"] = [
        time_command(command) for _ in range(repeat)
    ]
    if with_kafka:
        found["Apache Kafka 3.9: ZooKeeper and one broker"] = [
            time_kafka() for _ in range(min(repeat, 3))
        ]
    return found


def time_local_cluster(brokers: int) -> tuple[float, float]:
    cluster = LocalCluster(brokers=brokers)
    began = time.perf_counter()
    cluster.start()
    started = time.perf_counter()
    cluster.stop()
    return started - began, time.perf_counter() - started


def time_command(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, env=environment_with_bytecode())
    return time.perf_counter() - began


def time_tests(kind: str, fixtures: str, count: int) -> list[float]:
    """Run tests that do nothing. Returns the seconds of each, with set-up and teardown, without the first."""
    with TemporaryDirectory() as directory:
        Path(directory, "conftest.py").write_text(CONFTEST)
        Path(directory, f"test_{kind}.py").write_text(
            TESTS.format(kind=kind, fixtures=fixtures, count=count)
        )
        source = str(Path(barnabas.__file__).parents[1])
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--barnabas-brokers=3"],
            cwd=directory,
            env={**environment_with_bytecode(), "PYTHONPATH": source},
            capture_output=True,
            check=True,
        )
        phases: list[tuple[str, float]] = json.loads(Path(directory, "durations.json").read_text())
    totals: dict[str, float] = {}
    for name, seconds in phases:
        totals[name] = totals.get(name, 0.0) + seconds
    assert len(totals) == count
    return list(totals.values())[1:-1]  # the last one also stops the cluster of the session


def time_kafka() -> float:
    from interop.harness.jars import fetch, require_java
    from interop.harness.kafka import KafkaCluster
    from interop.harness.zookeeper import ZooKeeper

    java, jars = require_java(), fetch()
    with TemporaryDirectory() as scratch:
        began = time.perf_counter()
        with ZooKeeper(Path(scratch) / "zookeeper", java) as zookeeper:
            cluster = KafkaCluster(
                Path(scratch) / "kafka",
                java=java,
                jars=jars,
                zookeeper=zookeeper,
                options=START_SCRIPT,
            )
            with cluster:
                return time.perf_counter() - began


def table(found: Found) -> Iterator[str]:
    yield f"{'':52} {'median':>8}  spread"
    for name, values in found.items():
        low, middle, high = (f"{value:.3f} s" for value in spread(values))
        yield f"{name:52} {middle:>8}  {low}–{high}"
