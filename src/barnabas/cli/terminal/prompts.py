"""Confirmation prompts."""

from __future__ import annotations

import sys

import click

from barnabas.cli.terminal.output import confirm, print_note
from barnabas.errors import ConfigError


def confirm_deletion(question: str, *, yes: bool) -> None:
    """Ask before a deletion, unless `--yes` was given. Exits with 1 if the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("--yes", "required to delete without a terminal for the prompt")
    if not confirm(question):
        print_note("nothing was deleted")
        raise click.exceptions.Exit(1)
