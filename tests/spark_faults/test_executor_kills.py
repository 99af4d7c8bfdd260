"""Topic jobs and examples survive SIGKILL of executors on a standalone cluster with two workers, without a rerun.

All jobs and examples run at the same time in one driver. Spark repeats the tasks of a killed executor on the other
one, and starts a new executor.

BARNABAS_FAULT_ROUNDS sets the number of kills (default 3; `make faults` uses 20). BARNABAS_SEED repeats the moments of
a run.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest
from pyspark.sql import SparkSession

from support.broker import BrokerProcess
from support.seed import choose_seed
from support.waiting import eventually
from tests.processes import assert_ended
from tests.spark.standalone_cluster import bare_python, standalone_cluster
from tests.spark.topics import Topics
from tests.spark_faults.driver_process import JOB_DRIVER, DriverProcess
from tests.spark_faults.example_streams import (
    EXAMPLE_STREAMS,
    TOPICS,
    ExampleInput,
    check_join,
    check_windows,
    has_planned_a_batch,
)
from tests.spark_faults.executors import busy_executors
from tests.spark_faults.job_driver import Settings
from tests.spark_faults.topic_jobs import GROUP_SETTINGS, JOBS, Place, check_results, prepare

ROUNDS = int(os.environ.get("BARNABAS_FAULT_ROUNDS") or 3)
WORKERS, CORES = 2, 4
STEP_SECONDS = 120.0
FINISH_SECONDS = 300.0
SPREAD_S = 5.0
"""The kill comes at most this long after both executors run tasks."""
WRITE_EVERY_S = 0.25


@pytest.mark.timeout(300 + 60 * ROUNDS)
def test_jobs_and_examples_survive_killed_executors(
    tmp_path: Path, spark: SparkSession, trained_spark: str
) -> None:
    chance = Random(choose_seed())
    settings = {**GROUP_SETTINGS, "log.retention.ms": "-1"}
    with (
        BrokerProcess(tmp_path / "source", settings) as source,
        BrokerProcess(tmp_path / "mirror") as target,
        standalone_cluster(tmp_path / "spark", WORKERS, trained_spark, cores=CORES) as master,
    ):
        place = Place(
            servers=source.bootstrap_servers,
            mirror_servers=target.bootstrap_servers,
            directory=tmp_path,
        )
        expected = prepare(place, spark)
        topics = Topics(spark, place.servers)
        for name in TOPICS:
            topics.create(name, partitions=2, mark=False)
        events = ExampleInput(place.servers)
        events.write()
        with running(place, master, trained_spark) as driver:
            for _ in range(ROUNDS):
                kill_executor(driver, events, chance)
            events.finish()
            driver.finish(FINISH_SECONDS)
            assert_ended(driver.known)
        assert not driver.failures()
        report(driver)
        check_results(place, expected, set(TOPICS))
        check_windows(topics, tmp_path, events.seconds)
        check_join(topics, events.seconds)
        assert "Traceback" not in source.log() + target.log()


@contextmanager
def running(place: Place, master: str, java_options: str) -> Iterator[DriverProcess]:
    """A driver with all jobs and examples at work."""
    settings = Settings(
        work=[*JOBS, *EXAMPLE_STREAMS],
        servers=place.servers,
        mirror_servers=place.mirror_servers,
        master=master,
        python=str(bare_python(place.directory / "python")),
        java_options=java_options,
    )
    began_ns = time.time_ns()
    driver = DriverProcess(place.directory, [msgspec.json.encode(settings).decode()], JOB_DRIVER)
    try:
        driver.wait_until_running()
        eventually(
            lambda: bool(driver.failures()) or has_planned_a_batch(place.directory, began_ns),
            "the first batch of each stream",
            STEP_SECONDS,
        )
        yield driver
    finally:
        driver.end()


def kill_executor(driver: DriverProcess, events: ExampleInput, chance: Random) -> None:
    """Kill one of the executors when both run tasks. Its Python workers must end by themselves."""
    eventually(
        lambda: bool(driver.failures()) or len(busy_executors()) == WORKERS,
        "tasks on both executors",
        STEP_SECONDS,
    )
    kill_at = time.monotonic() + chance.uniform(0.0, SPREAD_S)
    while (left := kill_at - time.monotonic()) > 0:
        events.write()
        time.sleep(min(left, WRITE_EVERY_S))
    driver.require_running()
    victim = chance.choice(busy_executors())
    workers = victim.children(recursive=True)
    victim.kill()
    assert_ended([victim, *workers])


def report(driver: DriverProcess) -> None:
    targets: Counter[str] = Counter()
    repeated: Counter[str] = Counter()
    for line in driver.lines:
        if line.startswith("done "):
            _, job, _, failed_tasks = line.split()
            targets[job] += 1
            repeated[job] += int(failed_tasks)
    print(f"{ROUNDS} executors killed; targets: {dict(targets)}; repeated tasks: {dict(repeated)}")
