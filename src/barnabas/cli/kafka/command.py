"""Common parts of Kafka's commands: raw arguments in, lines and an exit code out.

exit 0   done           exit 1   everything else, --help too: so it is with Kafka's
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

import barnabas
from barnabas.cli.kafka.failures import Unread, WrongUsage, hint_of, message_of
from barnabas.cli.kafka.options import Option, ParsedOptions, read, usage
from barnabas.cli.terminal import output
from barnabas.client.cluster import Cluster
from barnabas.config.properties import parse_properties
from barnabas.errors import BarnabasError, ConfigError

OK, FAILED = 0, 1
KAFKA_RELEASE = "3.9.0"
"""Whose commands these are, by their options and their words; scripts compare it with others."""
TIMEOUT_S = 60.0
CLIENT_ID = "barnabas-kafka-command"


class KafkaCommand(click.Command):
    """Click command that parses no arguments: Kafka's commands parse them in their own way."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params = {"arguments": tuple(args)}
        return []


def run(
    arguments: Sequence[str],
    *,
    options: Sequence[Option],
    about: str,
    about_nothing: str,
    act: Callable[[ParsedOptions], int],
) -> int:
    """Run a command and return its exit code. Errors that `act` raises become lines on standard error."""
    try:
        if not arguments:
            raise WrongUsage(about_nothing)
        given = read(options, arguments)
        if given.has("help"):
            raise WrongUsage(about)
        if given.has("version"):
            say(f"{KAFKA_RELEASE} (Barnabas {barnabas.__version__})")
            return OK
        return act(given)
    except WrongUsage as error:
        complain(error.message)
        complain(*usage(options).split("\n"))
    except BarnabasError as error:
        complain(message_of(error))
        complain_hint(error)
    return FAILED


def say(*lines: str, keep: str = "") -> None:
    output.print_lines(*lines, keep=keep)


def complain(*lines: str) -> None:
    output.print_note(*lines)


def complain_hint(error: BarnabasError) -> None:
    if hint := hint_of(error):
        complain(f"hint:  {hint}")


# ---- the client


def cluster_of(given: ParsedOptions) -> Cluster:
    servers = given.value("bootstrap-server")
    assert servers is not None, "that there is one was checked with the other options"
    settings = client_settings(given.value("command-config"))
    return Cluster(
        servers,
        client_id=settings.get("client.id", CLIENT_ID),
        timeout_s=milliseconds(settings, "default.api.timeout.ms", TIMEOUT_S),
        connect_timeout_s=milliseconds(settings, "socket.connection.setup.timeout.ms", 10.0),
    )


def client_settings(path: str | None) -> dict[str, str]:
    """Return the settings of the --command-config file.

    Most of them tune retries and have no effect here. A security protocol that we do not support is an error.
    """
    settings = properties_of(path)
    protocol = settings.get("security.protocol", "PLAINTEXT").strip()
    if protocol != "PLAINTEXT":
        raise ConfigError("security.protocol", f"{protocol} is not spoken here, only PLAINTEXT")
    return settings


def properties_of(path: str | None) -> dict[str, str]:
    """Return the properties of a file, or none without a path."""
    if path is None:
        return {}
    try:
        return parse_properties(Path(path).read_text(encoding="iso-8859-1"), path)
    except OSError as error:
        raise Unread(f"{path} ({error.strerror})") from error


def milliseconds(settings: dict[str, str], name: str, default_s: float) -> float:
    text = settings.get(name, "").strip()
    if not text:
        return default_s
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ConfigError(name, f"{text!r} is not a number of milliseconds")
    return int(text) / 1000
