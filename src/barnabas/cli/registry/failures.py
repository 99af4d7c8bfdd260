"""Errors of the registry commands: one line on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from barnabas.cli.terminal.exit_codes import WRONG_USAGE
from barnabas.cli.terminal.output import print_note
from barnabas.errors import BadPath, BarnabasError, ConfigError, NoNode
from barnabas.printable import LINE_MAX, printable


class RegistryFailure(click.ClickException):
    """Failure that is shown as one line, without the usage of the command."""

    def show(self, file: IO[Any] | None = None) -> None:
        print_note(f"error: {printable(self.message, LINE_MAX)}")


class RegistryUsageError(RegistryFailure):
    exit_code = WRONG_USAGE


@contextmanager
def reported_errors() -> Iterator[None]:
    """Convert the errors of the registry."""
    try:
        yield
    except BadPath as error:
        raise RegistryUsageError(str(error)) from error
    except NoNode as error:
        raise RegistryFailure(f"Node does not exist: {error.path}") from error
    except ConfigError as error:
        is_option = error.key.startswith("-")
        raise RegistryFailure(error.why if is_option else str(error)) from error
    except BarnabasError as error:
        raise RegistryFailure(str(error)) from error
