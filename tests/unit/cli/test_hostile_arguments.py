"""Every command escapes hostile arguments in its output."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from barnabas.cli import main
from barnabas.cli.options import completions
from support.command import run

HOSTILE = "x\n\x1b[31m\x9b\u202e\u2028\ufeff\udcff\nforged"
LONG_RUNNING = {"up", "broker", "node", "zookeeper"}
"""Commands that configure logging and therefore run in a process of their own."""


def leaf_commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaf_commands(command, (*path, name))
        else:
            yield (*path, name)


def command_at(path: tuple[str, ...]) -> click.Command:
    found: click.Command = main.cli
    for name in path:
        assert isinstance(found, click.Group)
        below = found.get_command(click.Context(found), name)
        assert below is not None
        found = below
    return found


COMMANDS = list(leaf_commands(main.cli))


def assert_printable(captured: tuple[str, str]) -> None:
    lines = "\n".join(captured).split("\n")
    for line in lines:
        assert line.replace("\t", "").isprintable(), repr(line)
        assert not line.startswith("forged"), lines
    assert any(lines), "the command reports an error"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_unknown_options_are_escaped(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run_command([*path, f"--{HOSTILE}"]) != 0
    assert_printable(capsys.readouterr())


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_arguments_are_escaped(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """The command fails: too many arguments, no broker, or no such file."""
    params = command_at(path).params
    count = sum(isinstance(each, click.Argument) for each in params) or 1
    options = {option for each in params for option in each.opts}
    servers = ["-b", f"127.0.0.1:1,{HOSTILE}:1", "--timeout", "0.1"]
    arguments = [*path, *[HOSTILE] * count, *(servers if "--bootstrap-servers" in options else [])]
    if path[0] in LONG_RUNNING:
        ended = run(*arguments)
        assert ended.returncode != 0
        assert_printable((ended.stdout, ended.stderr))
        return
    assert main.run_command(arguments) != 0
    assert_printable(capsys.readouterr())


@pytest.mark.parametrize("path", [each for each in COMMANDS if each[0] not in LONG_RUNNING])
def test_option_values_are_escaped(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for option in command_at(path).params:
        if isinstance(option, click.Option) and not option.is_flag and not option.count:
            arguments = [*path, option.opts[-1], HOSTILE, *["x"] * 3]
            assert main.run_command(arguments) != 0
            assert_printable(capsys.readouterr())


def test_unprintable_names_are_not_completed() -> None:
    names = ["orders", "or\nplain,forged", "or\x1b[31m", "größe"]
    assert [item.value for item in completions(names, "or")] == ["orders"]
    assert [item.value for item in completions(names, "")] == ["orders", "größe"]
