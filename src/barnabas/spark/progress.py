"""What Spark is doing now, on one line of the terminal: a bar for jobs, a pulse for streams.

    ━━━━━━━━━━━━━━━━━━╸━━━━━━━━━━━━  12/20 tasks  3 s
    counts  12,400 rows/s  lag 310  batch 17 in 212 ms

Written to standard error and only if that is a terminal. The line is erased before anything else is printed by us, and
when the work is done. A thread looks five times a second; Spark itself is not asked to call back.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_S = 0.2
PATIENCE_S = 0.5
"""A job that is done sooner needs no bar."""
BAR = 32
ERASE = "\r\x1b[K"


def show_progress(spark: SparkSession, to: TextIO = sys.stderr) -> None:
    """Until the session stops. Where nobody watches, nothing is started."""
    if to.isatty():
        threading.Thread(
            target=watch, args=(spark, to), name="barnabas-progress", daemon=True
        ).start()


def watch(spark: SparkSession, to: TextIO) -> None:
    began: float | None = None
    shown = False
    # Java is gone when the session stops or the process ends, in the middle of whatever is asked here.
    with suppress(Exception):
        while spark.sparkContext._jsc is not None:
            time.sleep(INTERVAL_S)
            streams = [query for query in spark.streams.active if query.lastProgress]
            if streams:
                line = "   ".join(stream_text(query.lastProgress) for query in streams)
            else:
                began, line = jobs_line(spark, began)
            if line:
                to.write(ERASE + cut(line, shutil.get_terminal_size().columns))
            elif shown:
                to.write(ERASE)
            to.flush()
            shown = bool(line)
    if shown:
        to.write(ERASE)
        to.flush()


def jobs_line(spark: SparkSession, began: float | None) -> tuple[float | None, str]:
    """When the jobs that run now began, and what to show of them."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
    if not jobs:
        return None, ""
    now = time.monotonic()
    began = now if began is None else began
    if now - began < PATIENCE_S:
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
    filled = BAR * done // total if total else 0
    bar = "━" * BAR if filled >= BAR else "━" * filled + "╸" + "─" * (BAR - filled - 1)
    return f"{bar}  {done}/{total} tasks  {seconds:.0f} s"


def stream_text(progress: Any) -> str:
    """One stream from the progress of its last batch, as Spark reports it (a mapping, or an object with `json`)."""
    told: Mapping[str, Any] = (
        progress if isinstance(progress, Mapping) else json.loads(progress.json)
    )
    parts = [f"{told.get('processedRowsPerSecond') or 0.0:,.0f} rows/s"]
    behind = lag(told.get("sources", ()))
    if behind is not None:
        parts.append(f"lag {behind:,}")
    took = told.get("durationMs", {}).get("triggerExecution", told.get("batchDuration", 0))
    parts.append(f"batch {told.get('batchId', 0)} in {took} ms")
    return "  ".join([str(told.get("name") or "stream"), *parts])


def lag(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """Records that are in the topics and not yet in the stream; None where no source tells."""
    known = [
        (as_offsets(source.get("endOffset")), as_offsets(source.get("latestOffset")))
        for source in sources
    ]
    counts = [
        max(0, latest - done.get(topic, {}).get(partition, 0))
        for done, end in known
        for topic, partitions in end.items()
        for partition, latest in partitions.items()
    ]
    return sum(counts) if counts else None


def as_offsets(value: Any) -> dict[str, dict[str, int]]:
    """`{"orders": {"0": 17}}`, given as JSON, as a mapping, or not at all."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    if not isinstance(value, Mapping):
        return {}
    return {
        topic: {str(partition): offset for partition, offset in partitions.items()}
        for topic, partitions in value.items()
        if isinstance(partitions, Mapping)
        and all(isinstance(offset, int) for offset in partitions.values())
    }


def cut(line: str, columns: int) -> str:
    return line if len(line) < columns else line[: max(0, columns - 2)] + "…"
