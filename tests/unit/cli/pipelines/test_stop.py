from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.cli.main import run_command

RUN = """
import os, signal, sys
from barnabas.spark.run_state import RunState, state_directory
signal.signal(signal.SIGTERM, signal.SIG_IGN)
state = RunState.open(state_directory("pipelines"), "orders")
state.save({"name": "orders", "spec": "here", "pid": os.getpid()})
print("ready", flush=True)
sys.stdin.read()
"""


def test_stop_says_how_to_end_a_pipeline_that_does_not_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert run_command(["pipeline", "stop", "orders", "--timeout", "0.1"]) == 1
    error = capsys.readouterr().err
    assert f"orders (process {process.pid}) did not end within" in error
    assert f"kill -9 {process.pid}" in error
