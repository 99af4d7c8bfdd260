from __future__ import annotations

import click
import pytest
from pyspark.errors import AnalysisException

from barnabas.cli.spark.shell import run_code
from barnabas.errors import ConfigError


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
