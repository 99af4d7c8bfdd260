from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import barnabas
from barnabas.cli.brokers.broker import open_broker_registry
from barnabas.config.load import load_broker_config


@pytest.mark.parametrize(("replicas", "is_warned"), [(None, True), ("2", True), ("1", False)])
async def test_single_broker_warns_about_offsets_replication_factor(
    tmp_path: Path, replicas: str | None, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    factor = {} if replicas is None else {"offsets.topic.replication.factor": replicas}
    settings, _ = load_broker_config({"broker.id": "1", "log.dirs": f"{tmp_path}/logs", **factor})
    with caplog.at_level(logging.WARNING, "barnabas.broker"):
        registry = await open_broker_registry(settings)
    await registry.close()
    assert ("consumer groups cannot be used" in caplog.text) == is_warned
    assert ("set it to 1" in caplog.text) == is_warned


@pytest.mark.parametrize(
    ("pure", "mode"), [("", str(barnabas.code_mode)), ("1", "interpreted: BARNABAS_PURE is set")]
)
def test_first_log_line_says_which_code_runs(tmp_path: Path, pure: str, mode: str) -> None:
    if pure == "" and os.environ.get("BARNABAS_PURE"):
        pytest.skip("BARNABAS_PURE is set for all of these tests; run them without it")
    done = subprocess.run(
        [sys.executable, "-m", "barnabas.cli.main", "broker", str(tmp_path / "missing")],
        env=os.environ | {"BARNABAS_PURE": pure},
        capture_output=True,
        text=True,
        timeout=60,
    )
    first = done.stderr.splitlines()[0]
    version = barnabas.__version__
    assert f" INFO barnabas.broker starting barnabas={version} code={mode} python=" in first
