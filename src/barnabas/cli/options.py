"""Options that mean the same in every command, and completion that knows the topics."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from barnabas.cli.terminal.output import Output, render, write_out
from barnabas.client.cluster import Cluster
from barnabas.errors import BarnabasError

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_SERVERS = "localhost:9092"
SERVERS_VARIABLE = "BARNABAS_BOOTSTRAP_SERVERS"
WATCH_INTERVAL_S = 2.0
CLEAR_SCREEN = "\x1b[2J\x1b[H"
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
        help="Brokers to begin with; one that answers is enough.",
    )(command)


def servers_typed(servers: str) -> str:
    """What a command named in a hint needs, to reach the same brokers: ` -b HOST:PORT`, or nothing."""
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
        help="How long to try before giving up.",
    )(command)


def output_option(command: Command) -> Command:
    return click.option(
        "-o",
        "--output",
        type=click.Choice([output.value for output in Output]),
        default=Output.TEXT.value,
        show_default=True,
        callback=lambda _context, _parameter, value: Output(value),
        help="A table to read, or a document for programs.",
    )(command)


def dry_run_option(command: Command) -> Command:
    return click.option(
        "--dry-run",
        is_flag=True,
        help="Check everything and say what would happen; change nothing.",
    )(command)


def yes_option(command: Command) -> Command:
    return click.option("-y", "--yes", is_flag=True, help="Do not ask before destroying.")(command)


def watch_option(command: Command) -> Command:
    return click.option(
        "-w", "--watch", is_flag=True, help="Show it again every two seconds, until interrupted."
    )(command)


def show_or_watch(
    watch: bool, output: Output, load: Callable[[], Any], text: Callable[[Any], str]
) -> None:
    """Print a document once, or again and again: in place on a terminal, one after the other in a pipe."""
    while True:
        document = load()
        page = render(output, document, text)
        if watch and sys.stdout.isatty():
            page = CLEAR_SCREEN + page
        elif watch and output is Output.YAML:
            page = "---\n" + page
        write_out(f"{page}\n".encode())
        if not watch:
            return
        time.sleep(WATCH_INTERVAL_S)


def complete_topics(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Topic names for the shell. A cluster that does not answer completes nothing and says nothing."""
    servers = context.params.get("bootstrap_servers") or DEFAULT_SERVERS
    with suppress(BarnabasError):
        with Cluster(
            servers, timeout_s=COMPLETION_TIMEOUT_S, connect_timeout_s=COMPLETION_TIMEOUT_S
        ) as cluster:
            names = sorted(cluster.refresh(None).topics)
        return completions(names, incomplete)
    return []


def completions(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Names that begin as typed. Those the shell could not print or take back as typed are left out."""
    return [
        CompletionItem(name) for name in names if name.startswith(incomplete) and name.isprintable()
    ]
