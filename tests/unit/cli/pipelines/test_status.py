from __future__ import annotations

from typing import Any

import pytest

from barnabas.cli.pipelines.status import status_text


def row(name: str, error: str | None = None) -> dict[str, Any]:
    return {"flow": name, "rows_per_second": 0.0, "lag": 0, "batch": 1, "error": error}


@pytest.mark.parametrize(
    ("flows", "shown"),
    [
        ([], [["-", "no topic t"]]),
        ([row("a"), row("b")], [["a", "-"], ["b", "-"], ["-", "no topic t"]]),
        ([row("a", "lost"), row("b")], [["a", "lost"], ["b", "-"]]),
    ],
)
def test_error_of_a_run_is_shown_unless_a_flow_has_one(
    flows: list[dict[str, Any]], shown: list[list[str]]
) -> None:
    run = {"name": "p", "pid": 1, "mode": "continuous", "state": "FAILED", "runs": 1}
    text = status_text([{**run, "error": "no topic t", "flows": flows}])
    cells = [line.split(maxsplit=9) for line in text.splitlines()[1:]]
    assert [[line[5], line[9]] for line in cells] == shown
