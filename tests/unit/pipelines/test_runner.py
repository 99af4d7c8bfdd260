"""The loop of `run --continuous`: it starts again after failures, with growing pauses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.errors import BarnabasError, ConfigError
from barnabas.pipelines.failure import PipelineFailed
from barnabas.pipelines.progress import FlowProgress
from barnabas.pipelines.runner import PipelineSession, RunOptions, run_pipeline
from barnabas.pipelines.spec import parse_spec

OPTIONS = RunOptions(
    spec_path=Path("/p/spark-pipeline.yml"),
    spec=parse_spec("name: p\nstorage: s", "f"),
    servers="127.0.0.1:1",
    log=Path("/p/log"),
)
BROKEN = PipelineFailed("no broker reached")
WRONG = ConfigError("flows.py:3", "there is no topic orders")


class Observed:
    def flow_changed(self, flow: FlowProgress) -> None:
        pass

    def run_changed(self, state: str) -> None:
        pass


class Script(PipelineSession):
    """A session whose runs have these results, without Spark."""

    def __init__(self, *results: BarnabasError | None) -> None:
        super().__init__(OPTIONS, Observed())
        self.results = list(results)

    def start(self) -> None:
        self.client = Closable()  # type: ignore[assignment]

    def run(self, full_refresh: tuple[str, ...]) -> None:
        result = self.results.pop(0)
        if result is not None:
            raise result


class Closable:
    def close(self) -> None:
        pass


class StopAtEnd:
    """Requests a stop when the script has no more results. Waits end at once."""

    is_urgent = False

    def __init__(self, script: Script) -> None:
        self.script = script

    @property
    def is_requested(self) -> bool:
        return not self.script.results

    def wait(self, seconds: float) -> bool:
        return self.is_requested


def follow(script: Script) -> list[tuple[str, float]]:
    restarts: list[tuple[str, float]] = []

    def on_restart(error: BarnabasError, pause_s: float) -> None:
        restarts.append((str(error), pause_s))

    run: Any = run_pipeline
    run(script, StopAtEnd(script), lambda: None, continuous=True, on_restart=on_restart)
    return restarts


def test_pauses_grow_until_a_run_succeeds() -> None:
    restarts = follow(Script(*[BROKEN] * 8, None, BROKEN, None))
    assert [pause for _, pause in restarts] == [1, 2, 4, 8, 16, 32, 60, 60, 1]
    assert {error for error, _ in restarts} == {"no broker reached"}


def test_wrong_file_ends_the_first_run_and_is_retried_later() -> None:
    with pytest.raises(ConfigError, match="there is no topic orders"):
        follow(Script(BROKEN, WRONG, None))
    assert follow(Script(None, WRONG, None)) == [(str(WRONG), 1)]
