"""Reports of the streams of a session for `barnabas jobs`: a file that Spark's listener of streaming queries updates.

The file exists from the first stream of the session until the process ends. A stream that was stopped is removed from
it. A stream that failed stays, with its error.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StreamingQueryListener

from barnabas.errors import ConfigError
from barnabas.spark.error_text import brief_text
from barnabas.spark.progress import lag
from barnabas.spark.run_state import RunState, state_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )


def report_streams(spark: SparkSession) -> None:
    """Report the streams of the session until the process ends. Without a writable directory, nothing is reported."""
    reports = StreamReports(spark.sparkContext.master, state_directory("streams"))
    spark.streams.addListener(reports)
    atexit.register(reports.close)


class StreamReports(StreamingQueryListener):  # type: ignore[misc]
    """Spark calls the methods with capital letters, in a thread of their own."""

    def __init__(self, master: str, directory: Path) -> None:
        self.master = master
        self.directory = directory
        self.streams: dict[str, dict[str, Any]] = {}
        self.state: RunState | None = None
        self.lock = threading.Lock()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        self.update(
            str(event.id), name=event.name or str(event.id)[:8], state="running", error=None
        )

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        self.update(str(event.progress.id), **progress_fields(json.loads(event.progress.json)))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        self.update(str(event.id), rows_per_second=0.0)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        if event.exception is None:
            with self.lock:
                self.streams.pop(str(event.id), None)
            self.save()
        else:
            self.update(str(event.id), state="failed", error=brief_text(event.exception))

    def update(self, query_id: str, **fields: Any) -> None:
        with self.lock:
            self.streams.setdefault(query_id, {"id": query_id}).update(fields)
        self.save()

    def save(self) -> None:
        """Write the file. A report must never stop a stream, so errors are ignored."""
        with self.lock, suppress(ConfigError, OSError):
            if self.state is None:
                self.state = RunState.open(self.directory, str(os.getpid()))
            self.state.save(
                {
                    "pid": os.getpid(),
                    "program": Path(sys.argv[0]).name or "python",
                    "master": self.master,
                    "streams": list(self.streams.values()),
                }
            )

    def close(self) -> None:
        with self.lock:
            if self.state is not None:
                self.state.close()
                (self.directory / f"{os.getpid()}.lock").unlink(missing_ok=True)


def progress_fields(report: dict[str, Any]) -> dict[str, Any]:
    """Return the reported fields of Spark's progress of one batch."""
    durations = report.get("durationMs") or {}
    return {
        "rows_per_second": round(float(report.get("processedRowsPerSecond") or 0.0), 1),
        "lag": lag(report.get("sources", ())),
        "batch": report.get("batchId"),
        "batch_ms": durations.get("triggerExecution", report.get("batchDuration")),
        "at": report.get("timestamp"),
    }
