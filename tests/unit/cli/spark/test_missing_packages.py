"""Commands in an installation without the packages of the extras."""

from __future__ import annotations

import subprocess
import sys

import pytest

PACKAGES = (
    *("pyspark", "py4j", "pyarrow", "numpy", "jinja2", "pandas", "grpc", "yaml", "zstandard"),
    *("fastavro", "google", "grpc_tools", "cryptography", "jwt"),
)
WITHOUT_EXTRAS = f"import sys; sys.modules.update(dict.fromkeys({PACKAGES!r}))"
SHOW_ALL_HELP = """
import click
from barnabas.cli.main import cli

def show(command, path):
    with click.Context(command, info_name=path) as context:
        print(path, len(command.get_help(context)))
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                show(command.get_command(context, name), f"{path} {name}")

show(cli, "barnabas")
"""


def run_without_extras(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"{WITHOUT_EXTRAS}\n{code}", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_command_shows_its_help() -> None:
    done = run_without_extras(SHOW_ALL_HELP)
    assert done.stderr == ""
    for command in ("topics archive", "sql", "pipeline run", "lifecycle", "users create"):
        assert f"\nbarnabas {command} " in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        "topics archive orders --to archives",
        "topics restore archives/orders --to orders",
        "topics resize orders --partitions 3 --to orders-3",
        "topics mirror orders --from 127.0.0.1:1 --to 127.0.0.1:1",
        "spark --prepare",
    ],
)
def test_error_names_the_missing_package(command: str) -> None:
    done = run_without_extras("from barnabas.cli.main import main; main()", *command.split())
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "is not installed; pip install " in done.stderr
    assert len(done.stderr.splitlines()) == 1
