"""The loop of `run --continuous`: it starts again after failures, with growing pauses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.connect.session import SparkSession

from barnabas.errors import BarnabasError, ConfigError
from barnabas.pipelines.failure import PipelineFailed
from barnabas.pipelines.progress import FlowProgress
from barnabas.pipelines.runner import PipelineSession, RunOptions, run_pipeline
from barnabas.pipelines.spec import parse_spec
from barnabas.spark.connect import REMOTE_HINT, RemoteUnreachable

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

    def __init__(self, *results: BarnabasError | None, full_refresh: tuple[str, ...] = ()) -> None:
        super().__init__(replace(OPTIONS, full_refresh=full_refresh), Observed())
        self.results = list(results)
        self.starts = 0
        self.refreshes: list[tuple[str, ...]] = []

    def start(self) -> None:
        self.starts += 1
        self.client = Closable()  # type: ignore[assignment]

    def run(self, full_refresh: tuple[str, ...]) -> None:
        self.refreshes.append(full_refresh)
        result = self.results.pop(0)
        if result is not None:
            raise result


class Closable:
    def close(self) -> None:
        pass


class RunningServer:
    has_ended = False
    is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


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


def test_full_refresh_is_not_repeated_after_it_succeeded() -> None:
    script = Script(BROKEN, None, BROKEN, None, None, full_refresh=("t",))
    follow(script)
    assert script.refreshes == [("t",), ("t",), (), (), ()]


def test_remote_server_gets_new_client_after_failure() -> None:
    script = Script(None, BROKEN, BROKEN, None)
    follow(script)
    assert script.starts == 3


def test_own_server_keeps_its_client_after_failure() -> None:
    script = Script(None, BROKEN, BROKEN, None)
    script.server = RunningServer()  # type: ignore[assignment]
    follow(script)
    assert script.starts == 1


def test_own_server_without_client_is_stopped_before_restart() -> None:
    class FailedStart(Script):
        def start(self) -> None:
            if self.starts == 0:
                self.starts, self.server = 1, server  # type: ignore[assignment]
                raise BROKEN
            assert server.is_stopped
            super().start()

    server = RunningServer()
    script = FailedStart(None)
    follow(script)
    assert (script.starts, server.is_stopped) == (2, True)


def test_dry_run_does_not_claim_storage(tmp_path: Path) -> None:
    options = replace(OPTIONS, spec_path=tmp_path / "spark-pipeline.yml")
    PipelineSession(replace(options, dry=True), Observed()).claim_storage()
    assert list(tmp_path.iterdir()) == []
    PipelineSession(options, Observed()).claim_storage()
    other = replace(options, dry=True, spec=parse_spec("name: other\nstorage: s", "f"))
    with pytest.raises(ConfigError, match="belongs to the pipeline p"):
        PipelineSession(other, Observed()).claim_storage()


@pytest.fixture
def hanging_up() -> Iterator[int]:
    """The port of a server that closes all connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    listener.accept()[0].close()
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_remote_that_is_no_connect_server_is_reported(hanging_up: int) -> None:
    session = PipelineSession(replace(OPTIONS, remote=f"sc://127.0.0.1:{hanging_up}"), Observed())
    with pytest.raises(RemoteUnreachable, match=r"^--remote: no Spark Connect server answers at"):
        session.start()
    assert session.client is None


@pytest.mark.filterwarnings("error")
def test_remote_that_ends_after_the_check_is_reported(
    hanging_up: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # restores the environment
    monkeypatch.setattr("barnabas.pipelines.runner.check_remote", lambda *_: None)
    monkeypatch.setattr("barnabas.pipelines.client.RETRIES_MAX", 0)
    remote = f"sc://127.0.0.1:{hanging_up}/;token=hidden"
    session = PipelineSession(replace(OPTIONS, remote=remote), Observed())
    with pytest.raises(RemoteUnreachable) as caught:
        session.start()
    assert str(caught.value).startswith(
        "--remote: no session on the Spark Connect server (failed to"
    )
    assert str(caught.value).endswith(f"; {REMOTE_HINT}")
    assert "hidden" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert session.client is None
    assert SparkSession.getActiveSession() is None
