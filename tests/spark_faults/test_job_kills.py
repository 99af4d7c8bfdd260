"""Topic jobs survive SIGKILL of their driver: archive, restore, resize, mirror and profile are killed and repeated.

All jobs run at the same time in one driver, so that each kill hits each of them at another moment.

BARNABAS_FAULT_ROUNDS sets the number of kills (default 3; `make faults` uses 20). BARNABAS_SEED repeats the moments of
a run.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest
from pyspark.sql import SparkSession

from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.spark import session
from support.broker import BrokerProcess
from support.seed import choose_seed
from tests.faults.raw_client import RawClient
from tests.processes import assert_ended
from tests.spark_faults import topic_jobs
from tests.spark_faults.driver_process import JOB_DRIVER, DriverProcess, Victim
from tests.spark_faults.job_driver import Settings
from tests.spark_faults.topic_jobs import (
    ARCHIVE_STAGES,
    JOBS,
    PARTITIONS,
    RECORDS,
    SOURCE,
    Place,
    Values,
)

ROUNDS = int(os.environ.get("BARNABAS_FAULT_ROUNDS") or 3)
AIM_SECONDS = 10.0
"""If the chosen moment has not come by then, it is not waited for."""
SPREAD_S = 3.0
"""The kill comes at most this long after the chosen moment: about as long as a job takes."""
END_SECONDS = 60.0
GROUP_SETTINGS = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}


@pytest.fixture
def spark(trained_spark: str) -> Iterator[SparkSession]:
    """The session for the last, complete runs."""
    is_new = SparkSession.getActiveSession() is None
    running = session("local[2]", short=True, progress=False)
    running.sparkContext.setLogLevel("OFF")
    yield running
    if is_new:
        running.stop()


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
        expected = prepare(source, place, spark)
        logs = {"mirror": target.log_dir, "restore": source.log_dir, "resize": source.log_dir}
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


def prepare(source: BrokerProcess, place: Place, spark: SparkSession) -> Values:
    """Create the source and the archive that is restored. Returns the content of the source."""
    with RawClient(source.address) as client:
        assert client.create_topic(SOURCE, PARTITIONS) == 0
    topic_jobs.write_source(place.servers)
    topic_jobs.archive(spark, place, "source")
    expected = topic_jobs.read_values(place.servers, SOURCE, PARTITIONS)
    assert sum(map(len, expected.values())) == RECORDS
    return expected


def run_and_kill(
    place: Place, logs: dict[str, Path], victims: list[Victim], chance: Random
) -> DriverProcess:
    """Start the driver and kill it, once for each victim. Returns the last run, whose workers may not have ended."""
    settings = Settings(work=list(JOBS), servers=place.servers, mirror_servers=place.mirror_servers)
    done: Counter[str] = Counter()
    driver: DriverProcess | None = None
    for victim in victims:
        if driver is not None:
            assert_ended(driver.known, END_SECONDS)
        what, is_due = chance.choice(moments(place, logs, chance))
        arguments = [msgspec.json.encode(settings).decode()]
        driver = DriverProcess(place.directory, arguments, JOB_DRIVER)
        try:
            driver.wait_until_running()
            deadline = time.monotonic() + AIM_SECONDS
            while not is_due() and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(chance.uniform(0.0, SPREAD_S))
            assert driver.is_running and not driver.failures(), driver.failures()
            driver.kill(victim)
        finally:
            driver.end()
        print(f"killed {victim}, aimed at: {what}", flush=True)
        done.update(line.split()[1] for line in driver.lines if line.startswith("done "))
    print(f"kills: {Counter(map(str, victims))} of {len(JOBS)} jobs; complete before: {dict(done)}")
    assert driver is not None
    return driver


def moments(
    place: Place, logs: dict[str, Path], chance: Random
) -> list[tuple[str, Callable[[], bool]]]:
    """Moments of each job at its first target that is not complete."""

    def exists(pattern: str) -> tuple[str, Callable[[], bool]]:
        directory = place.archive(place.first_open("archive")).path
        return f"archive {pattern}", lambda: any(directory.glob(pattern))

    def has_bytes(job: str, prefix: str, bytes_min: int) -> tuple[str, Callable[[], bool]]:
        pattern = f"{prefix}-{place.first_open(job)}-*/*.log"
        log_dir = logs[job]
        return f"{job} {bytes_min} bytes", lambda: size(log_dir, pattern) >= bytes_min

    bytes_min = chance.choice([0, 1, RECORDS * 30])
    prefixes = {"restore": "restored", "resize": "resized", "mirror": "mirror"}
    archive = exists(chance.choice(ARCHIVE_STAGES))
    return [archive, *(has_bytes(job, prefix, bytes_min) for job, prefix in prefixes.items())]


def size(log_dir: Path, pattern: str) -> int:
    """Bytes of a topic on disk; -1 if it does not exist."""
    logs = list(log_dir.glob(pattern))
    return sum(path.stat().st_size for path in logs) if logs else -1


def complete(place: Place, name: str, spark: SparkSession) -> None:
    """Run the target that was killed last, unless it is complete."""
    number = place.first_open(name)
    JOBS[name].run(spark, place, number)
    place.done_file(name, number).touch()


def check_results(
    place: Place, expected: Values, other_topics: Collection[str] = frozenset()
) -> None:
    """Check all targets, and that nothing else is there, except other topics beside the source."""
    targets = {name: place.first_open(name) for name in JOBS}
    for name, job in JOBS.items():
        for number in range(targets[name]):
            job.check(place, number, expected)
    pages = {path.name for path in (place.directory / "pages").iterdir()}
    assert pages == {place.page(number).name for number in range(targets["profile"])}
    source, mirror = topic_jobs.expected_topics(targets)
    for servers, wanted in (
        (place.servers, source.union(other_topics)),
        (place.mirror_servers, mirror),
    ):
        with Cluster(servers) as cluster:
            found = {name for name in cluster.refresh(None).topics if not name.startswith("__")}
            groups = [each.group_id for each in GroupAdmin(cluster).list_groups()]
        assert found == wanted
        assert not groups, "offsets of a resize are left"
