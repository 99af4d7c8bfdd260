"""Options of all registry commands, access to the registry they name, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, TypeVar

import click
from click.core import ParameterSource

from barnabas.cli.registry.source import DEFAULT_DATA_DIRECTORY, RegistrySource, open_source
from barnabas.cli.terminal.exit_codes import WRONG_USAGE
from barnabas.cli.terminal.output import OutputFormat, print_note
from barnabas.errors import BadPath, BarnabasError, ConfigError, NoNode
from barnabas.printable import LINE_MAX, printable

Command = TypeVar("Command", bound=Callable[..., Any])


def registry_options(command: Command) -> Command:
    """Add the path and the options that every registry command takes."""
    for decorate in (
        click.option(
            "-o",
            "--output",
            type=click.Choice([output.value for output in OutputFormat]),
            default=OutputFormat.TEXT.value,
            help="text is for people; json and yaml are for programs.",
        ),
        click.option(
            "--data",
            metavar="DIR",
            default=DEFAULT_DATA_DIRECTORY,
            show_default=True,
            help="Data directory of `barnabas up`.",
        ),
        click.option(
            "--zookeeper",
            metavar="HOST:PORT,…",
            help="Read this ZooKeeper instead, as in zookeeper.connect.",
        ),
        click.argument("path", default="/"),
    ):
        command = decorate(command)
    return command


class RegistryFailure(click.ClickException):
    """Failure that is shown as one line, without the usage of the command."""

    def show(self, file: IO[Any] | None = None) -> None:
        print_note(f"error: {printable(self.message, LINE_MAX)}")


class RegistryUsageError(RegistryFailure):
    exit_code = WRONG_USAGE


@contextmanager
def open_registry(data: str, zookeeper: str | None) -> Iterator[RegistrySource]:
    """Open the registry in the data directory or in a ZooKeeper. Errors become one line on standard error."""
    named = click.get_current_context().get_parameter_source("data")
    if zookeeper is not None and named is ParameterSource.COMMANDLINE:
        raise RegistryUsageError("--data cannot be combined with --zookeeper")
    try:
        with open_source(data, zookeeper) as found:
            yield found
    except BadPath as error:
        raise RegistryUsageError(str(error)) from error
    except NoNode as error:
        raise RegistryFailure(f"Node does not exist: {error.path}") from error
    except ConfigError as error:
        raise RegistryFailure(error.why) from error
    except BarnabasError as error:
        raise RegistryFailure(str(error)) from error
