"""The examples windows and join survive SIGKILL of their driver: the results are right after the next run.

Both run in one driver, so that each kill hits both. New events arrive all the time.

BARNABAS_FAULT_ROUNDS sets the number of kills (default 3; `make faults` uses 20). BARNABAS_SEED repeats the moments of
a run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest
from pyspark.sql import SparkSession

from barnabas import LocalCluster
from support.seed import choose_seed
from tests.processes import assert_ended
from tests.spark.topics import Topics
from tests.spark_faults.driver_process import JOB_DRIVER, DriverProcess, Victim
from tests.spark_faults.example_streams import (
    EXAMPLE_STREAMS,
    TOPICS,
    ExampleInput,
    check_join,
    check_windows,
    has_planned_a_batch,
)
from tests.spark_faults.job_driver import Settings

ROUNDS = int(os.environ.get("BARNABAS_FAULT_ROUNDS") or 3)
START_SECONDS = 120.0
SPREAD_S = 3.0
"""The kill comes at most this long after all streams have planned their first batch of a run."""
WRITE_EVERY_S = 0.1
END_SECONDS = 60.0


@pytest.fixture
def topics(spark: SparkSession) -> Iterator[Topics]:
    settings = {"auto.create.topics.enable": "false", "log.retention.ms": "-1"}
    with LocalCluster(brokers=1, settings=settings) as cluster:
        yield Topics(spark, cluster.bootstrap_servers)


@pytest.mark.timeout(300 + 60 * ROUNDS)
def test_killed_examples_have_the_right_results(topics: Topics, tmp_path: Path) -> None:
    chance = Random(choose_seed())
    for name in TOPICS:
        topics.create(name, partitions=2, mark=False)
    events = ExampleInput(topics.servers)
    events.write()
    victims = [*Victim] * ROUNDS
    chance.shuffle(victims)
    for victim in victims[:ROUNDS]:
        run_and_kill(topics.servers, tmp_path, events, victim, chance)
    events.finish()
    for example in EXAMPLE_STREAMS.values():
        example.complete(topics.spark, tmp_path, topics.servers)
    check_windows(topics, tmp_path, events.seconds)
    check_join(topics, events.seconds)


def run_and_kill(
    servers: str, directory: Path, events: ExampleInput, victim: Victim, chance: Random
) -> None:
    """Start the driver, write events, and kill it."""
    settings = Settings(work=list(EXAMPLE_STREAMS), servers=servers)
    began_ns = time.time_ns()
    driver = DriverProcess(directory, [msgspec.json.encode(settings).decode()], JOB_DRIVER)
    try:
        driver.wait_until_running()
        deadline = time.monotonic() + START_SECONDS
        while not has_planned_a_batch(directory, began_ns):
            driver.require_running()
            assert time.monotonic() < deadline, driver.stderr_path.read_text()[-4000:]
            time.sleep(0.01)
        kill_at = time.monotonic() + chance.uniform(0.0, SPREAD_S)
        while (left := kill_at - time.monotonic()) > 0:
            events.write()
            time.sleep(min(left, WRITE_EVERY_S))
        driver.require_running()
        killed_at = time.monotonic()
        driver.kill(victim)
        assert_ended(driver.known, END_SECONDS)
    finally:
        driver.end()
    ended_s = time.monotonic() - killed_at
    print(f"killed {victim} at second {events.seconds} of the input, ended in {ended_s:.1f} s")
