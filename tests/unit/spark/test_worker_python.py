from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from barnabas.spark.start_scripts import worker_python

ZIPS = "/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-0.10.9.9-src.zip"
SHOW = "import os, sys; print(sys.executable); print(os.environ['PYTHONPATH'])"


def start_python(python: str, path: str) -> list[str]:
    """Return the executable and the PYTHONPATH that the started Python sees."""
    done = subprocess.run(
        [python, "-c", SHOW],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_remote_master_uses_given_python_or_own(
    tmp_path: Path,
) -> None:
    environment = {"PYSPARK_PYTHON": "/far/python"}
    assert worker_python(None, environment, tmp_path, local=False) == "/far/python"
    assert worker_python(None, {}, tmp_path, local=False) == sys.executable
    assert (
        worker_python("./env/bin/python", environment, tmp_path, local=False) == "./env/bin/python"
    )


def test_requested_python_is_used_unchanged(tmp_path: Path) -> None:
    assert worker_python("/my/python", {}, tmp_path, local=True) == "/my/python"


def test_local_python_drops_spark_zips_from_path(
    tmp_path: Path,
) -> None:
    python = worker_python(None, {"PYSPARK_PYTHON": "/far/python"}, tmp_path, local=True)
    assert start_python(python, f"{ZIPS}:/spark/jars/core.jar:/mine") == [
        sys.executable,
        "/spark/jars/core.jar:/mine",
    ]


def test_other_paths_are_kept(tmp_path: Path) -> None:
    python = worker_python(None, {}, tmp_path, local=True)
    assert start_python(python, "/mine:/others.zip") == [sys.executable, "/mine:/others.zip"]
