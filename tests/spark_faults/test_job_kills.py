"""Topic jobs survive SIGKILL of their driver: all jobs of topic_jobs.py are killed and repeated.

All jobs run at the same time in one driver, so that each kill hits each of them at another moment.

BARNABAS_FAULT_ROUNDS sets the number of kills (default 3; `make faults` uses 20). BARNABAS_SEED repeats the moments of
a run.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest
from pyspark.sql import SparkSession

from support.broker import BrokerProcess
from support.seed import choose_seed
from tests.processes import assert_ended
from tests.spark_faults.driver_process import JOB_DRIVER, DriverProcess, Victim
from tests.spark_faults.job_driver import Settings
from tests.spark_faults.topic_jobs import (
    ARCHIVE_STAGES,
    GROUP_SETTINGS,
    GROWING,
    GROWTH,
    JOBS,
    RECORDS,
    Place,
    check_results,
    prepare,
)

ROUNDS = int(os.environ.get("BARNABAS_FAULT_ROUNDS") or 3)
AIM_SECONDS = 10.0 if ROUNDS <= 3 else 60.0
"""The kill waits no longer for the chosen moment. `make test` has no time for the late ones."""
SPREADS_S = (1.0, 3.0, 12.0)
"""The kill comes at most this long after the chosen moment. The longest is about the time that all jobs take."""
END_SECONDS = 60.0
RECORD_BYTES = 110
COPIED_TOPICS = {
    "restore": "restored-{}-",
    "resize": "resized-{}-",
    "swap": "swapped-{}-",
    "mirror": "mirror-{}-",
    "follow": f"live-{GROWING}-",
}
"""The first part of the name of a partition that a job writes, for the number of its target."""


@pytest.mark.timeout(300 + 60 * ROUNDS)
def test_killed_jobs_complete_when_repeated(tmp_path: Path, spark: SparkSession) -> None:
    chance = Random(choose_seed())
    with (
        BrokerProcess(tmp_path / "source", GROUP_SETTINGS) as source,
        BrokerProcess(tmp_path / "mirror") as target,
    ):
        place = Place(
            servers=source.bootstrap_servers,
            mirror_servers=target.bootstrap_servers,
            directory=tmp_path,
        )
        expected = prepare(place, spark)
        logs = {
            job: (target if job in ("mirror", "follow") else source).log_dir
            for job in COPIED_TOPICS
        }
        victims = [*Victim] * ROUNDS
        chance.shuffle(victims)
        last = run_and_kill(place, logs, victims[:ROUNDS], chance)
        # Tasks of the killed run may still write, but not where this run writes (see remove_staging).
        complete(place, "archive", spark)
        # A worker may still send the first batch of a partition that the next run finds empty (docs/topic-jobs.md).
        assert_ended(last.known, END_SECONDS)
        for name in JOBS:
            complete(place, name, spark)
        check_results(place, expected)
        assert "Traceback" not in source.log() + target.log()


def run_and_kill(
    place: Place, logs: dict[str, Path], victims: list[Victim], chance: Random
) -> DriverProcess:
    """Start the driver and kill it, once for each victim. Returns the last run, whose workers may not have ended."""
    done: Counter[str] = Counter()
    driver: DriverProcess | None = None
    for victim in victims:
        if driver is not None:
            assert_ended(driver.known, END_SECONDS)
        what, is_due = chance.choice(moments(place, logs, chance))
        with running(place) as driver:
            deadline = time.monotonic() + AIM_SECONDS
            while not is_due() and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(chance.uniform(0.0, chance.choice(SPREADS_S)))
            driver.require_running()
            driver.kill(victim)
        print(f"killed {victim}, aimed at: {what}", flush=True)
        done.update(line.split()[1] for line in driver.lines if line.startswith("done "))
    print(f"kills: {Counter(map(str, victims))} of {len(JOBS)} jobs; complete before: {dict(done)}")
    assert driver is not None
    return driver


@contextmanager
def running(place: Place) -> Iterator[DriverProcess]:
    """A driver with all jobs at work. After an error, all its processes are killed."""
    settings = Settings(work=list(JOBS), servers=place.servers, mirror_servers=place.mirror_servers)
    driver = DriverProcess(place.directory, [msgspec.json.encode(settings).decode()], JOB_DRIVER)
    try:
        driver.wait_until_running()
        yield driver
    except BaseException:
        driver.end()
        raise


def moments(
    place: Place, logs: dict[str, Path], chance: Random
) -> list[tuple[str, Callable[[], bool]]]:
    """Moments of each job at its first target that is not complete."""

    def exists(pattern: str) -> tuple[str, Callable[[], bool]]:
        directory = place.archive(place.first_open("archive")).path
        return f"archive {pattern}", lambda: any(directory.glob(pattern))

    def grows(job: str, bytes_min: int) -> tuple[str, Callable[[], bool]]:
        pattern = COPIED_TOPICS[job].format(place.first_open(job)) + "*/*.log"
        before = max(0, size(logs[job], pattern))
        return f"{job} {bytes_min} bytes", lambda: size(logs[job], pattern) >= before + bytes_min

    archive = exists(chance.choice(ARCHIVE_STAGES))
    part = chance.choice([0.0, 0.001, 0.3, 0.9])
    growing = {"swap": 2 * GROWTH, "follow": GROWTH}
    records = {job: growing.get(job, RECORDS) for job in COPIED_TOPICS}
    return [
        archive,
        *(grows(job, int(part * each * RECORD_BYTES)) for job, each in records.items()),
    ]


def size(log_dir: Path, pattern: str) -> int:
    """Bytes of a topic on disk; -1 if it does not exist."""
    logs = list(log_dir.glob(pattern))
    return sum(path.stat().st_size for path in logs) if logs else -1


def complete(place: Place, name: str, spark: SparkSession) -> None:
    """Run the target that was killed last, unless it is complete."""
    number = place.first_open(name)
    JOBS[name].run(spark, place, number)
    place.done_file(name, number).touch()
