"""Parts that Kafka's commands share: the runner with its exit codes, and the client.

exit 0   success           exit 1   any failure, and --help, as with Kafka's commands
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

import barnabas
from barnabas.cli.kafka.failures import InvalidCommandLine, WrongUsage, error_message, find_hint
from barnabas.cli.kafka.options import Option, ParsedOptions, parse_options, usage_text
from barnabas.cli.terminal.output import print_lines, print_note
from barnabas.client.cluster import Cluster
from barnabas.config.properties import parse_properties
from barnabas.errors import BarnabasError, ConfigError
from barnabas.security.client_settings import merge_settings, parse_client_security
from barnabas.security.client_sources import read_environment

OK, FAILED = 0, 1
KAFKA_RELEASE = "3.9.0"
"""Release of Kafka whose options and output these commands have. --version prints it, for scripts that compare it."""
TIMEOUT_S = 60.0
CLIENT_ID = "barnabas-kafka-command"


class KafkaCommand(click.Command):
    """Click command that leaves its arguments to `parse_options`, because Kafka's rules differ from click's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params = {"arguments": tuple(args)}
        return []


def run_kafka_command(
    arguments: Sequence[str],
    *,
    known: Sequence[Option],
    about: str,
    brief: str,
    run: Callable[[ParsedOptions], int],
) -> int:
    """Run a command and return its exit code. Errors that `run` raises become lines on standard error.

    `about` is the first line of --help, `brief` the first line of the usage if there are no arguments.
    """
    try:
        if not arguments:
            raise WrongUsage(brief)
        options = parse_options(known, arguments)
        if options.has("help"):
            raise WrongUsage(about)
        if options.has("version"):
            print_lines(f"{KAFKA_RELEASE} (Barnabas {barnabas.__version__})")
            return OK
        return run(options)
    except WrongUsage as error:
        print_note(error.message)
        print_note(*usage_text(known).split("\n"))
    except BarnabasError as error:
        print_note(error_message(error))
        print_hint(error)
    return FAILED


def print_hint(error: BarnabasError) -> None:
    if hint := find_hint(error):
        print_note(f"hint:  {hint}")


def connect_client(
    options: ParsedOptions, *, config_option: str = "command-config", timeout_s: float = TIMEOUT_S
) -> Cluster:
    """Return a client of --bootstrap-server. `config_option` names the file with its settings.

    Most settings of the file tune retries and have no effect here. Security settings that it does not have come from
    the environment.
    """
    servers = options.value("bootstrap-server")
    assert servers is not None, "the commands check that it is given"
    settings = read_properties(options.value(config_option))
    security = merge_settings([read_environment(), settings])
    return Cluster(
        servers,
        client_id=settings.get("client.id", CLIENT_ID),
        timeout_s=parse_milliseconds(settings, "default.api.timeout.ms", timeout_s),
        connect_timeout_s=parse_milliseconds(settings, "socket.connection.setup.timeout.ms", 10.0),
        security=parse_client_security(security),
    )


def read_properties(path: str | None) -> dict[str, str]:
    """Return the properties of a file, or no properties if `path` is None."""
    if path is None:
        return {}
    try:
        return parse_properties(Path(path).read_text(encoding="iso-8859-1"), path)
    except OSError as error:
        raise InvalidCommandLine(f"{path} ({error.strerror})") from error


def parse_milliseconds(settings: dict[str, str], name: str, default_s: float) -> float:
    """Return the setting in seconds, or `default_s` if it is not set. Raises ConfigError."""
    text = settings.get(name, "").strip()
    if not text:
        return default_s
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ConfigError(
            name,
            f"{text!r} is not allowed, it must be a whole number of milliseconds greater than 0",
        )
    return int(text) / 1000
