"""The killed program: topic jobs and examples in one Spark application, each in its own thread.

    python job_driver.py <settings as JSON> <directory>

A job is run again and again with new targets, so that each kill finds it at work. After the process was killed, the
next one repeats the targets that were not complete. An error ends the thread and is reported on a line, except Spark's
WORKER_START_TIMEOUT, after which the work is repeated. A line on standard input ends the process after the current
targets and all input of the examples. It exits when standard input closes.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import barnabas.spark
from barnabas.jobs import copy_topic, mirror
from tests.spark_faults.driver import is_stop_requested, print_line, reason
from tests.spark_faults.example_streams import EXAMPLE_STREAMS
from tests.spark_faults.topic_jobs import JOBS, Place

OFFSETS_PER_CHECKPOINT = 2000
"""A mirror of the source then has two checkpoints for each partition."""
BATCH_BYTES = 5000
"""The copy of a partition then has about 70 batches, and most kills come between two of them."""

WORKER_START_TIMEOUT = "Python worker failed to connect back"
"""Spark gives a Python process of the driver 10 seconds to start, and has no setting for this. Nine jobs and streams
start many of them at once, and on a busy machine one may take longer."""


class Settings(Struct, frozen=True, kw_only=True):
    """The work to run and the brokers. The last two fields are for a remote master."""

    work: list[str]
    servers: str
    mirror_servers: str = ""
    master: str = "local[2]"
    python: str | None = None
    java_options: str = ""


def main(settings: Settings, directory: Path) -> None:
    mirror.OFFSETS_MAX = OFFSETS_PER_CHECKPOINT
    vars(copy_topic)["BATCH_BYTES"] = BATCH_BYTES
    place = Place(
        servers=settings.servers, mirror_servers=settings.mirror_servers, directory=directory
    )
    (directory / "done").mkdir(exist_ok=True)
    spark = start_session(settings, directory)
    print_line(f"java {spark.sparkContext._gateway.proc.pid}")
    stop = threading.Event()
    failed = threading.Event()

    def run(name: str, work: Callable[[SparkSession, str, Place, threading.Event], None]) -> None:
        try:
            # Makes the session active in this thread.
            session = barnabas.spark.session(settings.master)
            while True:
                try:
                    work(session, name, place, stop)
                except Exception as error:
                    if WORKER_START_TIMEOUT not in str(error):
                        raise
                    print_line(f"repeated {name}: {WORKER_START_TIMEOUT}")
                else:
                    break
        except BaseException as error:
            failed.set()
            text = " | ".join(str(error).splitlines())
            print_line(f"failed {name}: {type(error).__name__}: {text[:2000]}")
            raise

    threads = [
        threading.Thread(target=run, args=(name, repeat if name in JOBS else follow), daemon=True)
        for name in settings.work
    ]
    for thread in threads:
        thread.start()
    print_line("running")
    while any(thread.is_alive() for thread in threads):
        if is_stop_requested():
            stop.set()
    if failed.is_set():
        os._exit(1)
    spark.stop()


def start_session(settings: Settings, directory: Path) -> SparkSession:
    config = {
        "spark.local.dir": str(directory / "scratch"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    if settings.python is not None:
        config |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": settings.java_options,
            "spark.executor.extraJavaOptions": settings.java_options,
            "spark.executor.memory": "768m",
            "spark.sql.shuffle.partitions": "2",
            # On a slow machine, more kills than Spark's default of 4 may hit the same task.
            "spark.task.maxFailures": "100",
            "spark.stage.maxConsecutiveAttempts": "100",
            "spark.ui.enabled": "false",
        }
    return barnabas.spark.session(
        settings.master, python=settings.python, short=True, progress=False, config=config
    )


def repeat(spark: SparkSession, name: str, place: Place, stop: threading.Event) -> None:
    """Run a job with one target after another. Reports the tasks of each that failed and were repeated."""
    context = spark.sparkContext
    while not stop.is_set():
        number = place.first_open(name)
        context.setJobGroup(f"{name}-{number}", name)
        JOBS[name].run(spark, place, number)
        place.done_file(name, number).touch()
        print_line(f"done {name} {number} {failed_tasks(context, f'{name}-{number}')}")


def failed_tasks(context: SparkContext, group: str) -> int:
    """Return how many tasks of a job group failed. A job that succeeded has repeated them."""
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
    stages = {number for job in jobs if job is not None for number in job.stageIds}
    found = [tracker.getStageInfo(number) for number in stages]
    return sum(stage.numFailedTasks for stage in found if stage is not None)


def follow(spark: SparkSession, name: str, place: Place, stop: threading.Event) -> None:
    """Run the streams of an example, and at the end process the rest of the input."""
    example = EXAMPLE_STREAMS[name]
    queries = example.start(spark, place.directory, place.servers)
    try:
        wait_for_stop(queries, stop)
    finally:
        for query in queries:
            query.stop()
    example.complete(spark, place.directory, place.servers)


def wait_for_stop(queries: list[StreamingQuery], stop: threading.Event) -> None:
    """RuntimeError if a query ends before."""
    while not stop.wait(0.05):
        for query in queries:
            if not query.isActive:
                raise RuntimeError(reason(query))


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Settings), Path(sys.argv[2]))
