"""What Spark is doing now, on one line of the terminal: a bar for jobs, a pulse for streams.

    ━━━━━━━━━━━━━━━━━━╸━━━━━━━━━━━━  12/20 tasks  3 s
    counts  12,400 rows/s  lag 310  batch 17 in 212 ms

Written to standard error and only if that is a terminal. The line is erased before anything is printed to standard
output, while a prompt waits, and when the work is done. A thread looks five times a second; Spark itself is not asked
to call back.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

from barnabas.printable import printable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_S = 0.2
PATIENCE_S = 0.5
"""A job that is done sooner needs no bar."""
BAR = 32
ERASE = "\r\x1b[K"


class ProgressLine:
    """The last line of the terminal, which everybody else who prints finds empty."""

    def __init__(self, to: TextIO) -> None:
        self.to = to
        self.lock = threading.RLock()
        self.shown = False
        self.pauses = 0
        self.within_a_line = False
        """Somebody printed a text and not yet its end: drawn now, the line would take its place."""

    def show(self, text: str) -> None:
        with self.lock:
            if self.pauses or self.within_a_line:
                return
            if text:
                self.to.write(ERASE + cut(printable(text), shutil.get_terminal_size().columns))
                self.to.flush()
                self.shown = True
            else:
                self.erase()

    def erase(self) -> None:
        with self.lock:
            if self.shown:
                self.to.write(ERASE)
                self.to.flush()
                self.shown = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        # The lock is not held on the way: who waits at a prompt must not keep others from printing.
        with self.lock:
            self.pauses += 1
            self.erase()
        try:
            yield
        finally:
            with self.lock:
                self.pauses -= 1


class Beside:
    """Standard output that erases the line before it prints. In all else it is the stream it stands for."""

    def __init__(self, stream: TextIO, line: ProgressLine) -> None:
        self.stream = stream
        self.line = line

    def write(self, text: str) -> int:
        with self.line.paused():
            if text:
                self.line.within_a_line = not text.endswith("\n")
            return self.stream.write(text)

    def flush(self) -> None:
        """Also what Python does before it writes a prompt past us."""
        self.line.erase()
        self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


lines: list[ProgressLine] = []
"""None or one: a process has one terminal."""


@contextmanager
def progress_paused() -> Iterator[None]:
    """No line is shown meanwhile, and none is left over from before."""
    with ExitStack() as stack:
        for line in lines:
            stack.enter_context(line.paused())
        yield


def stop_progress() -> None:
    """For good: the process is about to end, and may have something to say of it."""
    for line in lines:
        with line.lock:
            line.pauses += 1
            line.erase()


def show_progress(spark: SparkSession, to: TextIO = sys.stderr) -> None:
    """Until the session stops. Where nobody watches, nothing is started."""
    if not to.isatty():
        return
    if not lines:
        lines.append(ProgressLine(to))
        if sys.stdout.isatty():
            sys.stdout = cast("TextIO", Beside(sys.stdout, lines[0]))
    threading.Thread(
        target=watch, args=(spark, lines[0]), name="barnabas-progress", daemon=True
    ).start()


def watch(spark: SparkSession, shown_on: ProgressLine) -> None:
    began: float | None = None
    # Java is gone when the session stops or the process ends, in the middle of whatever is asked here.
    with suppress(Exception):
        while spark.sparkContext._jsc is not None:
            time.sleep(INTERVAL_S)
            streams = [query for query in spark.streams.active if query.lastProgress]
            if streams:
                line = "   ".join(stream_text(query.lastProgress) for query in streams)
            else:
                began, line = jobs_line(spark, began)
            shown_on.show(line)
    shown_on.erase()


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
