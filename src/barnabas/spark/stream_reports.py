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

from barnabas.errors import ConfigError
from barnabas.spark.error_text import brief_text
from barnabas.spark.progress import lag
from barnabas.spark.run_state import RunState

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession


def report_streams(spark: SparkSession, directory: Path) -> None:
    """Report the streams of the session until the process ends. If `directory` is not writable, nothing is reported.

    Spark calls the reports without PySpark's StreamingQueryListener. That one fetches each field of a progress with
    several calls to Java, which takes half a core for ten micro-batches per second.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    reports = StreamReports(spark.sparkContext.master, directory)
    ensure_callback_server_started(spark.sparkContext._gateway)
    java: Any = spark.sparkContext._jvm
    listener = java.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(reports)
    spark.streams._jsqm.addListener(listener)
    atexit.register(reports.close)


class StreamReports:
    """Spark calls the methods with capital letters, in a thread of their own, with the events of all streams."""

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)

    def __init__(self, master: str, directory: Path) -> None:
        self.master = master
        self.directory = directory
        self.streams: dict[str, dict[str, Any]] = {}
        self.state: RunState | None = None
        self.lock = threading.Lock()

    def onQueryStarted(self, event: JavaObject) -> None:  # noqa: N802
        started = json.loads(event.json())
        name = started["name"] or started["id"][:8]
        self.update(started["id"], name=name, state="running", error=None)

    def onQueryProgress(self, event: JavaObject) -> None:  # noqa: N802
        progress = json.loads(event.json())["progress"]
        self.update(progress["id"], **progress_fields(progress))

    def onQueryIdle(self, event: JavaObject) -> None:  # noqa: N802
        self.update(json.loads(event.json())["id"], rows_per_second=0.0)

    def onQueryTerminated(self, event: JavaObject) -> None:  # noqa: N802
        ended = json.loads(event.json())
        if ended["exception"] is None:
            with self.lock:
                self.streams.pop(ended["id"], None)
            self.save()
        else:
            self.update(ended["id"], state="failed", error=brief_text(ended["exception"]))

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
