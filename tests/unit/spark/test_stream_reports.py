from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from barnabas.cli.spark.jobs import jobs_text
from barnabas.spark.error_text import brief_text
from barnabas.spark.run_state import list_runs
from barnabas.spark.stream_reports import StreamReports

PROGRESS = {
    "processedRowsPerSecond": 12.34,
    "batchId": 7,
    "durationMs": {"triggerExecution": 210},
    "timestamp": "2026-11-17T12:00:00Z",
    "sources": [{"endOffset": {"a": {"0": 5}}, "latestOffset": {"a": {"0": 8}}}],
}


def stream_id(number: int) -> str:
    return f"id-{number}-and-more"


def event(**fields: object) -> Any:
    """Return a stand-in for Spark's event, which Java turns into JSON."""
    return SimpleNamespace(json=lambda: json.dumps(fields))


def test_streams_are_reported_until_they_stop(tmp_path: Path) -> None:
    reports = StreamReports("local[2]", tmp_path)
    assert not list(tmp_path.iterdir())
    for number in (1, 2, 3):
        reports.onQueryStarted(event(id=stream_id(number), name=None))
    reports.onQueryProgress(event(progress={"id": stream_id(1), **PROGRESS}))
    reports.onQueryTerminated(event(id=stream_id(2), exception=None))
    error = "x.y.SomeException: no rows\n\tat x.Y(Y.java:1)"
    reports.onQueryTerminated(event(id=stream_id(3), exception=error))
    reports.onQueryIdle(event(id=stream_id(1)))
    (run,) = list_runs(tmp_path)
    first, last = run["streams"]
    assert run["pid"] == os.getpid()
    assert (first["state"], first["lag"], first["batch"], first["batch_ms"]) == (
        "running",
        3,
        7,
        210,
    )
    assert first["rows_per_second"] == 0.0
    assert (last["state"], last["error"]) == ("failed", "no rows")
    assert [line.split()[0] for line in jobs_text([run]).splitlines()] == [
        "STREAM",
        "id-1-and",
        "id-3-and",
    ]
    reports.close()
    assert not list(tmp_path.iterdir())


def test_errors_are_one_line() -> None:
    spark = "org.apache.spark.SparkRuntimeException: [USER_RAISED] bad row. SQLSTATE: P0001\n\tat x"
    assert brief_text(spark) == "bad row"
    python = (
        "x.StreamException: Traceback (most recent call last):\nbarnabas.errors.ConfigError: a: b\n"
    )
    assert brief_text(python) == "a: b"


def test_no_stream_is_said_plainly() -> None:
    assert jobs_text([]) == "no stream is running"
