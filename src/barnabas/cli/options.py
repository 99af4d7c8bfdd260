"""Options that have the same meaning in every command, and helpers for shell completion."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from barnabas.cli.terminal.output import OutputFormat
from barnabas.config.properties import parse_properties
from barnabas.errors import ConfigError

DEFAULT_SERVERS = "localhost:9092"
SERVERS_VARIABLE = "BARNABAS_BOOTSTRAP_SERVERS"
COMPLETION_TIMEOUT_S = 1.0


def default_servers() -> str:
    """Return the brokers for a command without -b: from the environment, the profile in use, or this machine.

    Raises ConfigError if the file of profiles is invalid.
    """
    if servers := os.environ.get(SERVERS_VARIABLE):
        return servers
    # Imported here because most commands get their brokers in another way.
    from barnabas.cli.setup.profiles import profile_in_use

    found = profile_in_use()
    return DEFAULT_SERVERS if found is None else found.servers


servers_option = click.option(
    "-b",
    "--bootstrap-servers",
    default=default_servers,
    show_default="the profile in use, or localhost:9092",
    envvar=SERVERS_VARIABLE,
    show_envvar=True,
    metavar="HOST:PORT,…",
    help="Bootstrap brokers; one reachable broker is enough.",
)
timeout_option = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for a request, including retries.",
)
output_option = click.option(
    "-o",
    "--output",
    type=click.Choice([output.value for output in OutputFormat]),
    default=OutputFormat.TEXT.value,
    show_default=True,
    callback=lambda _context, _parameter, value: OutputFormat(value),
    help="text is for people; json and yaml are for programs.",
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Validate and show what would change; change nothing."
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Skip the confirmation prompt.")
watch_option = click.option(
    "-w", "--watch", is_flag=True, help="Refresh every two seconds, until interrupted."
)
master_option = click.option(
    "--master",
    metavar="URL",
    help="Spark master, or sc://HOST:PORT; default: all cores of this machine.",
)
verify_option = click.option(
    "--verify/--no-verify",
    default=True,
    show_default=True,
    help="Read the copy back and compare every record with its source.",
)


def servers_text(servers: str) -> str:
    """Return ` -b HOST:PORT` for commands in hints, or an empty text if commands use `servers` without it."""
    try:
        default = default_servers()
    except ConfigError:
        default = ""
    return "" if servers == default else f" -b {servers}"


def parse_overrides(texts: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError("--override", f"'{text}' is not KEY=VALUE, as in num.partitions=3")
        settings[key.strip()] = value.strip()
    return settings


def read_properties(path: Path) -> dict[str, str]:
    try:
        return parse_properties(path.read_text(encoding="iso-8859-1"), str(path))
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error


def is_encodable(text: str) -> bool:
    """Return whether a request can carry the text. Arguments that are not UTF-8 contain lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def completions(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Return the names that start with `incomplete`, except unprintable ones."""
    return [
        CompletionItem(name) for name in names if name.startswith(incomplete) and name.isprintable()
    ]
