from __future__ import annotations

import io
import json
from typing import Any

import pytest

from barnabas.spark.progress import (
    ERASE,
    Beside,
    ProgressLine,
    cut,
    job_text,
    lag,
    stream_text,
)


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


def test_a_line_never_wraps() -> None:
    assert cut("abcdef", 5) == "abc…"
    assert cut("abc", 5) == "abc"


class Terminal(io.StringIO):
    """Remembers what stands on its last line."""

    def isatty(self) -> bool:
        return True

    def last_line(self) -> str:
        return self.getvalue().rpartition("\n")[2].rpartition(ERASE)[2]


def test_what_is_printed_never_stands_behind_the_line() -> None:
    terminal = Terminal()
    line = ProgressLine(terminal)
    out = Beside(terminal, line)
    line.show("3/4 tasks")
    assert terminal.last_line() == "3/4 tasks"
    print("a row", file=out)
    assert terminal.getvalue().endswith(f"3/4 tasks{ERASE}a row\n")
    line.show("4/4 tasks")
    assert terminal.last_line() == "4/4 tasks"
    line.show("")
    assert terminal.last_line() == ""


def test_a_line_that_somebody_has_begun_is_left_alone() -> None:
    terminal = Terminal()
    line = ProgressLine(terminal)
    out = Beside(terminal, line)
    print("name: ", end="", file=out)
    line.show("3/4 tasks")
    line.erase()
    assert terminal.getvalue() == "name: "
    print("x", file=out)
    line.show("3/4 tasks")
    assert terminal.last_line() == "3/4 tasks"


def test_nothing_is_shown_while_a_prompt_waits() -> None:
    terminal = Terminal()
    line = ProgressLine(terminal)
    line.show("3/4 tasks")
    with line.paused():
        assert terminal.last_line() == ""
        terminal.write(">>> ")
        line.show("3/4 tasks")
        line.show("")
        assert terminal.last_line() == ">>> "
    line.show("4/4 tasks")
    assert terminal.last_line() == "4/4 tasks"


def test_who_flushes_finds_an_empty_line_and_the_stream_itself() -> None:
    terminal = Terminal()
    line = ProgressLine(terminal)
    line.show("3/4 tasks")
    out = Beside(terminal, line)
    out.flush()
    assert terminal.last_line() == ""
    assert out.isatty()
