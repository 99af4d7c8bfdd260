from __future__ import annotations

import json
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo

from barnabas.progress_line import ERASE, ProgressLine
from barnabas.spark import progress as progress_module
from barnabas.spark.progress import job_text, lag, show_remote_progress, stream_text


@pytest.mark.parametrize(("done", "total"), [(0, 4), (3, 4), (4, 4), (0, 0)])
def test_bar_has_constant_width(done: int, total: int) -> None:
    bar, _, rest = job_text(done, total, 1.6).partition("  ")
    assert len(bar) == 32
    assert rest == f"{done}/{total} tasks  2 s"


def test_full_bar_is_filled() -> None:
    assert set(job_text(4, 4, 0).split()[0]) == {"━"}
    assert job_text(2, 4, 0).startswith("━" * 16 + "╸")


def progress(**more: Any) -> dict[str, Any]:
    return {
        "name": "counts",
        "batchId": 17,
        "processedRowsPerSecond": 12400.4,
        "durationMs": {"triggerExecution": 212},
        "sources": [
            {
                "endOffset": json.dumps({"orders": {"0": 90, "1": 100}}),
                "latestOffset": json.dumps({"orders": {"0": 100, "1": 100, "2": 300}}),
            }
        ],
        **more,
    }


def test_stream_text_shows_speed_lag_and_last_batch() -> None:
    assert stream_text(progress()) == "counts  12,400 rows/s  lag 310  batch 17 in 212 ms"


def test_unknown_lag_is_omitted() -> None:
    without_lag = progress(sources=[{"endOffset": "17", "latestOffset": None}], name=None)
    assert stream_text(without_lag) == "stream  12,400 rows/s  batch 17 in 212 ms"


def test_lag_accepts_mappings_and_is_never_negative() -> None:
    sources = [{"endOffset": {"a": {"0": 9}}, "latestOffset": {"a": {"0": 3}}}]
    assert lag(sources) == 0
    assert lag([]) is None


def test_remote_queries_are_shown_until_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = StringIO()
    times = iter([100.0, 103.0, 200.0, 201.0])
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setattr(progress_module, "shared_line", lambda: ProgressLine(terminal))
    handlers: list[ProgressHandler] = []
    show_remote_progress(SimpleNamespace(registerProgressHandler=handlers.append))
    (handler,) = handlers
    stages = [StageInfo(0, 4, 1, 0, False), StageInfo(1, 6, 2, 0, False)]
    handler(stages=stages, inflight_tasks=2, operation_id="q", done=False)
    assert "  3/10 tasks  3 s" in terminal.getvalue()
    handler(stages=None, inflight_tasks=0, operation_id="q", done=True)
    assert terminal.getvalue().endswith(ERASE)
    # The time between two queries does not count.
    handler(stages=stages, inflight_tasks=2, operation_id="r", done=False)
    assert "  3/10 tasks  1 s" in terminal.getvalue()
