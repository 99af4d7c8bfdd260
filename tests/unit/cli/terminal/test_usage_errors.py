"""Errors of click have the form of all errors: `error: …`, `hint:  …`, exit code 2."""

from __future__ import annotations

import pytest

from barnabas.cli.main import run_command


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["topcs"], "no such command 'topcs'", "did you mean 'topics'?"),
        (["xyzzy"], "no such command 'xyzzy'", "usage: barnabas [OPTIONS] COMMAND [ARGS]..."),
        (["topics", "list", "--outptu"], "no such option: --outptu", "did you mean --output?"),
        (
            ["topics", "list", "--xyzzy"],
            "no such option: --xyzzy",
            "usage: barnabas topics list [OPTIONS]; `barnabas topics list --help` shows all options",
        ),
        (["topics", "create"], "missing argument 'NAME'", "usage: barnabas topics create"),
        (
            ["topics", "create", "a", "--partitions", "x"],
            "invalid value for '--partitions': 'x' is not a valid integer range",
            "usage: barnabas topics create [OPTIONS] NAME",
        ),
        (["topics", "list", "-b"], "option '-b' requires an argument", "add --help"),
        (["topics", "list", "a"], "got unexpected extra argument (a)", "usage: barnabas"),
    ],
)
def test_usage_errors_have_one_form(
    arguments: list[str], error: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(arguments) == 2
    out, shown = capsys.readouterr()
    first, second = shown.splitlines()
    assert out == ""
    assert first == f"error: {error}"
    assert second.startswith(f"hint:  {hint}")


def test_group_without_command_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["topics"]) == 2
    assert "Commands:" in capsys.readouterr().err
