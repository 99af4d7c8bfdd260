from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.spark.progress import job_text, lag, stream_text


@pytest.mark.parametrize(("done", "total"), [(0, 4), (3, 4), (4, 4), (0, 0)])
def test_the_bar_is_as_long_whatever_is_done(done: int, total: int) -> None:
    bar, _, rest = job_text(done, total, 1.6).partition("  ")
    assert len(bar) == 32
    assert rest == f"{done}/{total} tasks  2 s"


def test_a_full_bar_is_full() -> None:
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


def test_a_stream_tells_its_speed_its_lag_and_its_last_batch() -> None:
    assert stream_text(progress()) == "counts  12,400 rows/s  lag 310  batch 17 in 212 ms"


def test_a_stream_that_knows_no_lag_says_nothing_of_it() -> None:
    told = progress(sources=[{"endOffset": "17", "latestOffset": None}], name=None)
    assert stream_text(told) == "stream  12,400 rows/s  batch 17 in 212 ms"


def test_offsets_may_be_mappings_and_a_recreated_topic_is_no_negative_lag() -> None:
    sources = [{"endOffset": {"a": {"0": 9}}, "latestOffset": {"a": {"0": 3}}}]
    assert lag(sources) == 0
    assert lag([]) is None
