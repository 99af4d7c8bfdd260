from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.cli.main import COMMANDS, run_command


def test_help_lists_every_command_without_importing_any() -> None:
    program = (
        "import sys; from barnabas.cli.main import run_command; run_command(['--help']);"
        "print(sorted(name for name in sys.modules if name.startswith('barnabas.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    *_, imported = done.stdout.splitlines()
    assert (
        imported
        == "['barnabas.cli', 'barnabas.cli.lazy_group', 'barnabas.cli.main', 'barnabas.errors']"
    )
    assert all(name in done.stdout for name in COMMANDS)


OURS = [name for name in COMMANDS if not name.startswith("kafka-")]  # Kafka's help is another


@pytest.mark.parametrize("name", OURS)
def test_every_command_that_is_listed_can_be_called(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([name, "--help"]) == 0
    assert f"barnabas {name}" in capsys.readouterr().out


def test_a_mistyped_command_is_wrong_usage_and_the_near_one_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["topcs", "list"]) == 2
    assert "Did you mean 'topics'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "orders", "-O", "begining"],
        ["consume", "orders", "-f", "%q"],
        ["consume", "orders", "--filter", "nonsense"],
        ["consume", "orders", "-f", "%s", "-K", ":"],
        ["consume"],
        ["produce", "orders", "-k", "a", "-K", ":"],
        ["produce", "orders", "-D", ""],
        ["produce", "orders", "-H", "=x"],
        ["topics", "create", "orders", "--replica-assignment", "zero"],
        ["topics", "create", "orders", "--replica-assignment", "0", "--partitions", "1"],
        ["topics", "create", "orders", "--config", "retention.ms"],
        ["topics", "list", "-b", "nonsense:port"],
        ["topics", "list", "--output", "xml"],
    ],
)
def test_wrong_usage_is_found_before_any_broker_is_asked(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "rror:" in told.err
    assert "Traceback" not in told.err


def test_where_nobody_listens_the_exit_code_says_the_cluster_did_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["topics", "list", "-b", "127.0.0.1:1"]) == 1
    told = capsys.readouterr().err
    assert "127.0.0.1:1" in told
    assert "barnabas up" in told
