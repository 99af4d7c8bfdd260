"""Wrong usages of every command, generated from the table of commands. None prints a traceback.

Each wrong usage prints `error: …` on standard error, nothing on standard output, and exits with 2, or with 1 if the
cluster rejects it or no broker answers.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import NamedTuple

import click
import pytest

from barnabas import LocalCluster
from barnabas.cli.main import run_command
from barnabas.cli.reference.table import KINDS as COMMAND_KINDS
from barnabas.cli.reference.table import CommandEntry, Kind, all_commands

NOWHERE = "127.0.0.1:1"
MISSING = "no-such-thing"
NO_NUMBER = "many"

REQUIRED_VALUES = {
    "--before": "end",
    "--partitions": "3",
    "--to": "copy-of-it",
    "--from": NOWHERE,
    "--topic": MISSING,
}
"""Required option → a value of the right form."""

MORE_ARGUMENTS = {
    "configs alter": ["--topic", MISSING, "retention.ms=1"],
    "configs describe": ["--topic", MISSING],
    "configs reset": ["--topic", MISSING, "retention.ms"],
    "elect-leaders": ["--topic", MISSING, "--partition", "0"],
    "groups reset": ["--to-latest", "--topic", MISSING],
    "quotas set": ["--user", MISSING],
    "quotas unset": ["--user", MISSING, "--all"],
    "reassign plan": ["--drain", "97"],
    "reassign run": ["--drain", "97", "--yes"],
    "topics offsets": [MISSING],
    "topics describe": [MISSING],
    "groups describe": [MISSING],
    "brokers log-dirs": ["97"],
    "brokers decommission": ["--yes"],
    "brokers drain": ["--yes"],
    "topics delete": ["--yes"],
    "topics trim": ["--yes"],
    "groups delete": ["--yes"],
}
"""Command → arguments that make it name something that does not exist."""

VALID_WITH_ANY_NAME = {"topics create", "topics mirror", "profile create"}


class WrongUsage(NamedTuple):
    arguments: tuple[str, ...]
    codes: frozenset[int] = frozenset({2})

    @property
    def id(self) -> str:
        return " ".join(self.arguments)


def entries() -> Iterator[CommandEntry]:
    """Yield the commands with our own options. Kafka's commands have their own tests."""
    for entry in all_commands():
        if COMMAND_KINDS[entry.name] is not Kind.KAFKA:
            yield entry


def options_of(entry: CommandEntry) -> Iterator[click.Option]:
    for each in entry.command.params:
        if isinstance(each, click.Option):
            yield each


def arguments_of(entry: CommandEntry) -> list[click.Argument]:
    return [each for each in entry.command.params if isinstance(each, click.Argument)]


def value_for(parameter: click.Parameter) -> str:
    """Return a value of the right form for an argument or a required option."""
    if isinstance(parameter.type, click.Choice):
        return str(parameter.type.choices[0])
    is_number = isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType)
    return REQUIRED_VALUES.get(parameter.opts[-1], "97" if is_number else MISSING)


def well_formed(entry: CommandEntry) -> list[str]:
    """Return the required arguments and options."""
    words = [value_for(each) for each in arguments_of(entry) if each.required]
    for each in options_of(entry):
        if each.required:
            words += [each.opts[-1], value_for(each)]
    return words


def takes_value(option: click.Option) -> bool:
    return not option.is_flag and not option.count


def syntax_errors() -> Iterator[WrongUsage]:
    """Yield usages that fail before a command runs."""
    yield WrongUsage((MISSING,))
    for entry in entries():
        path = entry.path
        yield WrongUsage((*path, "--no-such-option"))
        yield WrongUsage((*path, "-~"))
        found = arguments_of(entry)
        if any(each.required for each in found):
            yield WrongUsage(path)
        if all(each.nargs == 1 for each in found):
            yield WrongUsage((*path, *["97"] * len(found), "one-too-many"))
        for option in options_of(entry):
            spelling = option.opts[-1]
            if not takes_value(option):
                yield WrongUsage((*path, f"{spelling}=value"))
                continue
            yield WrongUsage((*path, *well_formed(entry), spelling))
            if isinstance(option.type, click.Choice):
                yield WrongUsage((*path, *well_formed(entry), spelling, MISSING))
            if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
                yield WrongUsage((*path, *well_formed(entry), spelling, NO_NUMBER))
                yield WrongUsage((*path, *well_formed(entry), spelling, ""))


def group_errors() -> Iterator[WrongUsage]:
    """Yield unknown commands of each group."""
    groups = {entry.path[:-1] for entry in all_commands() if len(entry.path) > 1}
    for path in sorted(groups):
        yield WrongUsage((*path, MISSING))
        yield WrongUsage((*path, "--no-such-option"))


def address_errors() -> Iterator[WrongUsage]:
    """Yield usages with a cluster that does not exist, or an address that is none."""
    for entry in entries():
        if "--timeout" not in entry.options or "--bootstrap-servers" not in entry.options:
            continue
        words = (*entry.path, *well_formed(entry), *MORE_ARGUMENTS.get(entry.name, ()))
        # Some commands find another mistake first, such as a missing file.
        yield WrongUsage((*words, "-b", NOWHERE, "--timeout", "0.5"), frozenset({1, 2}))
        malformed = (*words, "-b", "host:port", "--timeout", "0.5")
        is_first = entry.name == "topics restore"  # it reads the missing archive first
        yield WrongUsage(malformed, frozenset({1 if is_first else 2}))


SYNTAX_ERRORS = list(dict.fromkeys([*syntax_errors(), *group_errors()]))
ADDRESS_ERRORS = list(address_errors())


def check(usage: WrongUsage, captured: pytest.CaptureFixture[str]) -> None:
    code = run_command(list(usage.arguments))
    out, error = captured.readouterr()
    assert code in usage.codes, (code, out, error)
    assert out == "", "results only"
    first, *others = error.rstrip("\n").split("\n")
    assert first.startswith("error: "), error
    assert len(first) > len("error: ")
    assert "Traceback" not in error
    assert all(line.startswith(("hint:  ", " ")) for line in others), error


@pytest.fixture(autouse=True)
def empty_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))


def test_there_are_enough_wrong_usages() -> None:
    assert len(SYNTAX_ERRORS) + len(ADDRESS_ERRORS) + len(UNKNOWN_NAMES) >= 400
    walked = {entry.path for entry in entries()}
    reached = {usage.arguments[: len(path)] for usage in SYNTAX_ERRORS for path in walked}
    assert walked <= reached


@pytest.mark.parametrize("usage", SYNTAX_ERRORS, ids=lambda usage: usage.id)
def test_wrong_syntax(usage: WrongUsage, capfd: pytest.CaptureFixture[str]) -> None:
    check(usage, capfd)


@pytest.mark.parametrize("usage", ADDRESS_ERRORS, ids=lambda usage: usage.id)
def test_wrong_address(usage: WrongUsage, capfd: pytest.CaptureFixture[str]) -> None:
    check(usage, capfd)


# ---- names that do not exist --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with LocalCluster() as cluster:
        yield cluster.bootstrap_servers


def unknown_names() -> Iterator[WrongUsage]:
    """Yield well-formed usages with a topic, group or broker that does not exist."""
    for entry in entries():
        words = [*well_formed(entry), *MORE_ARGUMENTS.get(entry.name, ())]
        if words and entry.name not in VALID_WITH_ANY_NAME and "--timeout" in entry.options:
            yield WrongUsage((*entry.path, *words), frozenset({1, 2}))


UNKNOWN_NAMES = list(unknown_names())


@pytest.mark.parametrize("usage", UNKNOWN_NAMES, ids=lambda usage: usage.id)
def test_unknown_name(usage: WrongUsage, servers: str, capfd: pytest.CaptureFixture[str]) -> None:
    if "--bootstrap-servers" in options_at(usage):
        usage = usage._replace(arguments=(*usage.arguments, "-b", servers, "--timeout", "5"))
    check(usage, capfd)


def options_at(usage: WrongUsage) -> set[str]:
    return next(
        entry.options
        for entry in all_commands()
        if usage.arguments[: len(entry.path)] == entry.path
    )
