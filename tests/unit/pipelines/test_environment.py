"""Missing packages, Java or Spark Connect are reported before Spark starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.cli.main import cli
from barnabas.errors import ConfigError
from barnabas.pipelines import dependencies
from barnabas.pipelines.server_process import check_connect, last_message


@pytest.mark.parametrize("command", ["run", "dry-run"])
def test_command_without_packages_names_the_extra(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.setitem(sys.modules, "yaml", None)
    done = CliRunner().invoke(cli, ["pipeline", command])
    assert isinstance(done.exception, ConfigError)
    why = "pipelines: PyYAML, grpcio not installed; run: pip install 'barnabas[pipelines]'"
    assert str(done.exception) == why


def test_missing_packages_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "MODULES", {"no_such_module.rpc": "grpcio", "json": "json"})
    with pytest.raises(ConfigError, match=r"grpcio not installed; run: pip install 'barnabas\[pi"):
        dependencies.check_packages()


def test_spark_without_connect_is_refused(tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "spark-core_2.13-4.3.0.jar").touch()
    with pytest.raises(ConfigError, match=r"has no Spark Connect .* or use a Connect server"):
        check_connect(tmp_path)
    (jars / "spark-connect_2.13-4.3.0.jar").touch()
    check_connect(tmp_path)


def test_cause_is_found_above_the_stack() -> None:
    stack = "\tat org.x.Y.z(Y.scala:1)\n\t... 9 more\n"
    output = f"spark: starting\njava.lang.Error: outer\n{stack}Caused by: no class Z\n{stack}"
    assert last_message(output) == "Caused by: no class Z"
    assert last_message("") == ""
