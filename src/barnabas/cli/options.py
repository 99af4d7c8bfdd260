"""Options that have the same meaning in every command, and helpers for shell completion."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from barnabas.cli.terminal.output import OutputFormat

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_SERVERS = "localhost:9092"
SERVERS_VARIABLE = "BARNABAS_BOOTSTRAP_SERVERS"
COMPLETION_TIMEOUT_S = 1.0


def bootstrap_option(command: Command) -> Command:
    return click.option(
        "-b",
        "--bootstrap-servers",
        default=DEFAULT_SERVERS,
        show_default=True,
        envvar=SERVERS_VARIABLE,
        show_envvar=True,
        metavar="HOST:PORT,…",
        help="Bootstrap brokers; one reachable broker is enough.",
    )(command)


def servers_option(servers: str) -> str:
    """Return ` -b HOST:PORT` for the commands in hints, or an empty text if the default reaches the same brokers."""
    known = os.environ.get(SERVERS_VARIABLE) or DEFAULT_SERVERS
    return "" if servers == known else f" -b {servers}"


def timeout_option(command: Command) -> Command:
    return click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0.1),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="Give up after this time.",
    )(command)


def output_option(command: Command) -> Command:
    return click.option(
        "-o",
        "--output",
        type=click.Choice([output.value for output in OutputFormat]),
        default=OutputFormat.TEXT.value,
        show_default=True,
        callback=lambda _context, _parameter, value: OutputFormat(value),
        help="text is for people; json and yaml are for programs.",
    )(command)


def dry_run_option(command: Command) -> Command:
    return click.option(
        "--dry-run", is_flag=True, help="Validate and show what would change; change nothing."
    )(command)


def yes_option(command: Command) -> Command:
    return click.option("-y", "--yes", is_flag=True, help="Skip the confirmation prompt.")(command)


def watch_option(command: Command) -> Command:
    return click.option(
        "-w", "--watch", is_flag=True, help="Refresh every two seconds, until interrupted."
    )(command)


def completions(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Return the names that start with `incomplete`, without those that are not printable."""
    return [
        CompletionItem(name) for name in names if name.startswith(incomplete) and name.isprintable()
    ]
