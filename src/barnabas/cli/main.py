"""`barnabas`: the entry point, the list of commands, and what a failure looks like.

    exit 0   done                       exit 1   the cluster said no, or is not there
    exit 2   wrong usage or setting     exit 130 interrupted, 143 by SIGTERM
                                        exit 141 the reader of our output went away

`up`, `broker` and `zookeeper` run until a signal asks them to stop, and so have done all they were asked for: exit 0.

Commands are imported when they are called for: `barnabas --help` stays quick, and a broker carries no client code.
"""

from __future__ import annotations

import importlib
import io
import logging
import os
import sys
import traceback
from collections.abc import Sequence

import click

import barnabas
from barnabas.errors import BarnabasError, ConfigError

COMMANDS = {
    "topics": (
        "barnabas.cli.topics.describe:topics",
        "Create, list, describe, alter and delete topics.",
    ),
    "brokers": ("barnabas.cli.brokers.list:brokers", "See the brokers of the cluster."),
    "controller": (
        "barnabas.cli.brokers.controller:controller",
        "See which broker is in charge of the others.",
    ),
    "produce": (
        "barnabas.cli.records.produce:produce",
        "Write records to a topic from standard input or files.",
    ),
    "consume": (
        "barnabas.cli.records.consume:consume",
        "Read records of a topic to standard output.",
    ),
    "groups": (
        "barnabas.cli.groups.describe:groups",
        "See consumer groups, set where they go on, delete them.",
    ),
    "sql": ("barnabas.cli.spark.sql:sql", "Ask topics with Spark SQL, once or as a stream."),
    "spark": ("barnabas.cli.spark.shell:spark", "Open a PySpark shell with the topics as tables."),
    "lifecycle": (
        "barnabas.cli.history.report:lifecycle",
        "See how topics were made, led, lost and deleted, in a report.",
    ),
    "up": ("barnabas.cli.brokers.up:up", "Start a cluster on this machine."),
    "broker": ("barnabas.cli.brokers.broker:broker", "Run one broker."),
    "zookeeper": ("barnabas.cli.zookeeper:zookeeper", "Start a ZooKeeper on this machine."),
    "registry": (
        "barnabas.cli.registry.commands:registry",
        "Look into the registry the cluster keeps its state in.",
    ),
    "kafka-topics": (
        "barnabas.cli.kafka.topics:kafka_topics",
        "Kafka's command of that name, with its options and its words.",
    ),
    "kafka-configs": (
        "barnabas.cli.kafka.configs:kafka_configs",
        "The same, for the settings of topics and brokers.",
    ),
}

OK, REFUSED, WRONG_USAGE, INTERRUPTED, READER_GONE = 0, 1, 2, 130, 141


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one only to run it or to show its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        from barnabas.log_lines import PrintableFormatter

        if logging.lastResort is not None:
            # Commands that configure no logging print warnings of the client through this handler.
            logging.lastResort.setFormatter(PrintableFormatter())
        # Caught here, within click, because click itself would make a failure of it.
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise click.exceptions.Exit(reader_gone()) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from difflib import get_close_matches

        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], COMMANDS, n=1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None


@click.group(
    cls=LazyGroup,
    epilog='Completion of commands and topic names: eval "$(_BARNABAS_COMPLETE=bash_source barnabas)"',
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(barnabas.__version__, prog_name="barnabas")
def cli() -> None:
    """Barnabas: a streaming platform that speaks Apache Kafka's wire protocol."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The console entry point: run, and turn whatever happens into an exit code and at most a few lines."""
    try:
        code = run(arguments)
    except Exception:  # noqa: BLE001 - a defect: the traceback may quote names, too
        from barnabas.cli.terminal.output import note

        note(*traceback.format_exc().rstrip("\n").split("\n"))
        code = REFUSED
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = reader_gone()
    sys.exit(code)


def run(arguments: Sequence[str] | None) -> int:
    try:
        result = cli.main(args=arguments, prog_name="barnabas", standalone_mode=False)
        return result if isinstance(result, int) else OK
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        show_usage_error(error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BarnabasError as error:
        from barnabas.cli.terminal.failure import explain
        from barnabas.cli.terminal.output import note

        note(*explain(error).split("\n"))
        return WRONG_USAGE if isinstance(error, ConfigError) else REFUSED


def show_usage_error(error: click.ClickException) -> None:
    """As click shows it, with the words of the command line that it quotes escaped."""
    from barnabas.cli.terminal.output import note
    from barnabas.printable import LINE_MAX, printable

    # Escaped before click composes its lines: afterwards a newline of a quoted word looks like one of click's.
    error.message = printable(error.message, LINE_MAX)  # type: ignore[misc]
    text = io.StringIO()
    error.show(text)
    if shown := text.getvalue().rstrip("\n"):
        note(*shown.split("\n"))


def reader_gone() -> int:
    """`barnabas consume … | head`: head has seen enough. Python would complain again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return READER_GONE


if __name__ == "__main__":
    main()
