"""Progress of a Spark session: a bar for jobs, and throughput and lag of streams.

    ━━━━━━━━━━━━━━━━━━╸━━━━━━━━━━━━  12/20 tasks  3 s
    counts  12,400 rows/s  lag 310  batch 17 in 212 ms

A thread reads Spark's status five times a second and shows it on the progress line (barnabas/progress_line.py).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from barnabas.model import TopicPartition
from barnabas.progress_line import ProgressLine, shared_line
from barnabas.spark.planning import parse_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_S = 0.2
SHOW_AFTER_S = 0.5
"""Shorter jobs get no bar."""
BAR_WIDTH = 32


def show_progress(spark: SparkSession) -> None:
    """Show progress until the session stops. Does nothing without a terminal."""
    line = shared_line()
    if line is None:
        return
    threading.Thread(
        target=watch_session, args=(spark, line), name="barnabas-progress", daemon=True
    ).start()


def watch_session(spark: SparkSession, progress_line: ProgressLine) -> None:
    began: float | None = None
    # Any call fails after Java has ended, because the session was stopped or the process ends.
    with suppress(Exception):
        while spark.sparkContext._jsc is not None:
            time.sleep(INTERVAL_S)
            streams = [query for query in spark.streams.active if query.lastProgress]
            if streams:
                line = "   ".join(stream_text(query.lastProgress) for query in streams)
            else:
                began, line = jobs_line(spark, began)
            progress_line.show(line)
    progress_line.erase()


def show_remote_progress(spark: SparkSession) -> None:
    """Show the progress of the queries on a Spark Connect server, which reports it. Does nothing without a terminal."""
    line = shared_line()
    if line is None:
        return
    began: float | None = None

    def report(stages: Iterable[Any] | None, done: bool, **_: object) -> None:
        nonlocal began
        if done or stages is None:
            began = None
            line.show("")
            return
        began = time.monotonic() if began is None else began
        counts = [(stage.num_completed_tasks, stage.num_tasks) for stage in stages]
        completed, total = (sum(each) for each in zip((0, 0), *counts, strict=True))
        line.show(job_text(completed, total, time.monotonic() - began))

    spark.registerProgressHandler(report)


def jobs_line(spark: SparkSession, began: float | None) -> tuple[float | None, str]:
    """Return when the running jobs began, and the text to show for them."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
    if not jobs:
        return None, ""
    now = time.monotonic()
    began = now if began is None else began
    if now - began < SHOW_AFTER_S:
        return began, ""
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    done = sum(stage.numCompletedTasks for stage in stages if stage)
    total = sum(stage.numTasks for stage in stages if stage)
    return began, job_text(done, total, now - began)


def job_text(done: int, total: int, seconds: float) -> str:
    """
    >>> job_text(3, 4, 2.4)
    '━━━━━━━━━━━━━━━━━━━━━━━━╸───────  3/4 tasks  2 s'
    """
    filled = BAR_WIDTH * done // total if total else 0
    bar = f"{'━' * filled}╸".ljust(BAR_WIDTH, "─")[:BAR_WIDTH]
    return f"{bar}  {done}/{total} tasks  {seconds:.0f} s"


def stream_text(progress: Any) -> str:
    """Return the text of one stream from Spark's progress of its last batch (a mapping, or an object with `json`)."""
    report: Mapping[str, Any] = (
        progress if isinstance(progress, Mapping) else json.loads(progress.json)
    )
    parts = [f"{report.get('processedRowsPerSecond') or 0.0:,.0f} rows/s"]
    records_behind = lag(report.get("sources", ()))
    if records_behind is not None:
        parts.append(f"lag {records_behind:,}")
    took = report.get("durationMs", {}).get("triggerExecution", report.get("batchDuration", 0))
    parts.append(f"batch {report.get('batchId', 0)} in {took} ms")
    return "  ".join([str(report.get("name") or "stream"), *parts])


def lag(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the number of offsets that the stream has not read yet, or None if no source reports them."""
    pairs = [
        (as_offsets(source.get("endOffset")), as_offsets(source.get("latestOffset")))
        for source in sources
    ]
    counts = [
        max(0, end - read.get(partition, 0))
        for read, latest in pairs
        for partition, end in latest.items()
    ]
    return sum(counts) if counts else None


def as_offsets(value: Any) -> dict[TopicPartition, int]:
    """Return offsets from JSON text, decoded JSON or None. Empty if the source has offsets of another form."""
    try:
        return parse_offsets(json.loads(value) if isinstance(value, str) else value)
    except ValueError:
        return {}
