from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

import barnabas
from barnabas.cli.main import COMMANDS, run_command
from support.command import COMMAND
from support.process import ENVIRONMENT


def test_help_lists_every_command_without_importing_it() -> None:
    program = (
        "import sys; from barnabas.cli.main import run_command; run_command(['--help']);"
        "print(sorted(name for name in sys.modules if name.startswith('barnabas.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    *_, imported = done.stdout.splitlines()
    assert imported == (
        "['barnabas.cli', 'barnabas.cli.lazy_group', 'barnabas.cli.main', 'barnabas.compiled', "
        "'barnabas.errors']"
    )
    assert all(name in done.stdout for name in COMMANDS)


def test_version_says_which_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--version"]) == 0
    shown = capsys.readouterr().out
    assert shown == f"barnabas, version {barnabas.__version__} ({barnabas.code_mode})\n"


# The help of Kafka's commands has another format.
OURS = [name for name in COMMANDS if not name.startswith(("kafka-", "zookeeper-"))]


@pytest.mark.parametrize("name", OURS)
def test_every_listed_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([name, "--help"]) == 0
    assert f"barnabas {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "similar"), [(["topcs", "list"], "topics"), (["reassign", "rum"], "run")]
)
def test_mistyped_command_suggests_similar_one(
    capsys: pytest.CaptureFixture[str], arguments: list[str], similar: str
) -> None:
    assert run_command(arguments) == 2
    assert f"hint:  did you mean {similar!r}?" in capsys.readouterr().err


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
def test_wrong_usage_is_found_before_connecting(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err


def test_unreachable_cluster_exits_with_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["topics", "list", "-b", "127.0.0.1:1"]) == 1
    captured = capsys.readouterr().err
    assert "127.0.0.1:1" in captured
    assert "barnabas up" in captured


@pytest.mark.parametrize(
    ("redirection", "code", "error"),
    [
        (">/dev/full", 1, "error: standard output: No space left on device\n"),
        (">&-", 0, ""),
        ("<&- >/dev/null", 0, ""),
    ],
)
def test_closed_and_full_outputs_give_no_traceback(redirection: str, code: int, error: str) -> None:
    command = shlex.join([*COMMAND, "profile", "list"])
    done = subprocess.run(
        ["sh", "-c", f"{command} {redirection}"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, error)


def test_reset_rejects_execute_with_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    reset = ["groups", "reset", "g", "--to-latest", "--all-topics", "--execute", "--dry-run"]
    assert run_command(reset) == 2
    assert "--execute" in capsys.readouterr().err
