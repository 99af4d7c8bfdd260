from __future__ import annotations

import fcntl
import sys
from pathlib import Path

import click
import pytest
from pyspark.errors import AnalysisException

from barnabas.cli.main import run_command
from barnabas.cli.spark.shell import run_code
from barnabas.errors import ConfigError
from barnabas.spark.class_archive import find_archive


def test_code_with_a_python_error_prints_a_traceback_and_exits_with_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(click.exceptions.Exit) as caught:
        run_code("print(value)\n1 / 0", {"value": 7}, [])
    assert caught.value.exit_code == 1
    out, error = capsys.readouterr()
    assert out == "7\n"
    assert "ZeroDivisionError" in error


def test_code_with_an_error_of_spark_raises_it_translated() -> None:
    def fail() -> None:
        raise AnalysisException(
            "[UNRESOLVED_COLUMN] A column with name `kye` cannot be resolved. SQLSTATE: 42703"
        )

    with pytest.raises(ConfigError, match="A column with name `kye` cannot be resolved"):
        run_code("fail()", {"fail": fail}, [])


def test_prepare_names_a_missing_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "barnabas.spark.training", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    assert run_command(["spark", "--prepare"]) == 2
    assert capsys.readouterr().err.startswith("error: pyarrow: is not installed; pip install ")


def test_prepare_reports_that_another_process_writes_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive = find_archive()
    archive.path.parent.mkdir(parents=True)
    with archive.path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run_command(["spark", "--prepare"]) == 1
    assert capsys.readouterr().err == (
        f"writing {archive.path} ...\n"
        "error: the file was not written\n"
        "hint:  another process may be writing the file; try again in a minute\n"
    )
