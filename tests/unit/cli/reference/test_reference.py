"""Every command has the options that its kind requires, and docs/commands.md lists all commands."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from barnabas.cli.reference.page import commands_page
from barnabas.cli.reference.table import KINDS, REQUIRED_OPTIONS, CommandEntry, all_commands

COMMITTED = Path(__file__).parents[4] / "docs" / "commands.md"
COMMANDS = list(all_commands())


def test_every_command_has_a_kind() -> None:
    """If this fails: add the new command to KINDS."""
    assert {entry.name for entry in COMMANDS} == KINDS.keys()


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_command_has_the_options_of_its_kind(entry: CommandEntry) -> None:
    missing = REQUIRED_OPTIONS[KINDS[entry.name]] - entry.options
    assert not missing, f"barnabas {entry.name} {KINDS[entry.name]} and needs {missing}"


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_command_has_help_for_every_option(entry: CommandEntry) -> None:
    assert entry.about
    for each in entry.command.params:
        if isinstance(each, click.Option):
            assert each.help, f"{entry.name}: {each.opts} has no help"


def test_commands_page_is_up_to_date() -> None:
    """If this fails: python -m barnabas.cli.reference > docs/commands.md"""
    assert COMMITTED.read_text(encoding="utf-8") == commands_page()
