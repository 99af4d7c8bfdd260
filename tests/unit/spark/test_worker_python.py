from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from barnabas.spark.worker_python import worker_python

ZIPS = "/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-0.10.9.9-src.zip"
SHOW = "import os, sys; print(sys.executable); print(os.environ['PYTHONPATH'])"


def started(python: str, path: str) -> list[str]:
    """Which Python it is, and with which path."""
    done = subprocess.run(
        [python, "-c", SHOW],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_a_remote_master_has_the_python_it_was_given_or_that_of_this_process(
    tmp_path: Path,
) -> None:
    told = {"PYSPARK_PYTHON": "/far/python"}
    assert worker_python(None, told, tmp_path, local=False) == "/far/python"
    assert worker_python(None, {}, tmp_path, local=False) == sys.executable
    assert worker_python("./env/bin/python", told, tmp_path, local=False) == "./env/bin/python"


def test_a_python_that_was_asked_for_is_started_as_it_is(tmp_path: Path) -> None:
    assert worker_python("/my/python", {}, tmp_path, local=True) == "/my/python"


def test_on_this_machine_it_is_the_python_of_this_process_without_the_zips_of_spark(
    tmp_path: Path,
) -> None:
    python = worker_python(None, {"PYSPARK_PYTHON": "/far/python"}, tmp_path, local=True)
    assert started(python, f"{ZIPS}:/spark/jars/core.jar:/mine") == [
        sys.executable,
        "/spark/jars/core.jar:/mine",
    ]


def test_any_other_path_stays_as_it_is(tmp_path: Path) -> None:
    python = worker_python(None, {}, tmp_path, local=True)
    assert started(python, "/mine:/others.zip") == [sys.executable, "/mine:/others.zip"]
