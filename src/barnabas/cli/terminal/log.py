"""Log lines on standard error, and the options for them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from barnabas.cli.terminal.output import print_note
from barnabas.log_lines import JsonFormatter, PrintableFormatter

LEVELS = ("debug", "info", "warning", "error")
JSON = "json"


class LogOptions(NamedTuple):
    """The options that `log_options` adds to a command."""

    level: str = "info"
    format: str = "text"

    @property
    def is_json(self) -> bool:
        return self.format == JSON

    @property
    def arguments(self) -> list[str]:
        """Return the options for the command line of another process."""
        default = LogOptions()
        level = [] if self.level == default.level else [f"--log-level={self.level}"]
        return level + ([] if self.format == default.format else [f"--log-format={self.format}"])


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --log-level and --log-format, as keyword arguments `log_level` and `log_format`."""
    for option in (
        click.option(
            "--log-format",
            type=click.Choice(["text", JSON]),
            default="text",
            show_default=True,
            help="Format of the log on standard error; json: one object per line.",
        ),
        click.option(
            "--log-level",
            type=click.Choice(LEVELS, case_sensitive=False),
            default="info",
            show_default=True,
            help="Log only messages of this level and above.",
        ),
    ):
        command = option(command)
    return command


def report_warning(text: str, logs: LogOptions) -> None:
    """Print a warning about the configuration, or log it if the log is JSON."""
    if logs.is_json:
        logging.getLogger("barnabas.config").warning("configuration problem=%s", text)
    else:
        print_note(f"warning: {text}")


def log_to_stderr(level: int, *, as_json: bool = False) -> None:
    handler = logging.StreamHandler()
    text = PrintableFormatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler.setFormatter(JsonFormatter() if as_json else text)
    logging.basicConfig(level=level, handlers=[handler], force=True)


def start_logging(options: LogOptions) -> None:
    log_to_stderr(logging.getLevelNamesMapping()[options.level.upper()], as_json=options.is_json)
