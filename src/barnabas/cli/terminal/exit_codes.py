"""Exit codes of `barnabas`, and the lines on standard error that go with a failure.

    0     success                      1     the request failed, or no broker could be reached
    2     wrong usage or setting       130   SIGINT          143   SIGTERM
    75    a broker was stuck           141   the reader of standard output closed it

`up`, `broker`, `node` and `zookeeper` run until a signal stops them. They exit with 0 after a clean shutdown.
`up -- COMMAND` exits with the code of the command.
"""

from __future__ import annotations

import os
import sys
import traceback

import click

from barnabas.cli.terminal.output import print_note
from barnabas.errors import BarnabasError, ConfigError
from barnabas.printable import LINE_MAX, printable

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
OUTPUT_CLOSED = 141
SIMILAR_MAX = 3
"""Maximum number of suggested names."""


def report_failure(
    error: click.ClickException | click.Abort | KeyboardInterrupt | BarnabasError,
) -> int:
    """Print the failure and return the exit code."""
    if isinstance(error, click.ClickException):
        show_usage_error(error)
        return error.exit_code
    if isinstance(error, BarnabasError):
        # Imported here because it loads the client, which usage errors do not need.
        from barnabas.cli.terminal.failure import explain

        print_note(*explain(error).split("\n"))
        return WRONG_USAGE if isinstance(error, ConfigError) else FAILED
    return INTERRUPTED


def report_crash() -> int:
    """Print the traceback of the current exception, with escaped control characters, and return the exit code."""
    print_note(*traceback.format_exc().rstrip("\n").split("\n"))
    return FAILED


def show_usage_error(error: click.ClickException) -> None:
    """Print an error of click in the form of all errors. A group without a command prints its help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print_note(*error.format_message().split("\n"))
        return
    print_note(f"error: {printable(usage_message(error), LINE_MAX)}")
    if hint := usage_hint(error):
        print_note(f"hint:  {printable(hint, LINE_MAX)}")


def usage_message(error: click.ClickException) -> str:
    """Return click's message as one clause: `missing argument 'NAME'`."""
    if isinstance(error, click.NoSuchOption):
        return f"no such option: {error.option_name}"
    message = " ".join(error.format_message().split(" ")).removesuffix(".")
    return message[:1].lower() + message[1:]


def usage_hint(error: click.ClickException) -> str:
    """Return the next step: the similar name, or else the usage of the command."""
    if not isinstance(error, click.UsageError):
        return ""
    if error.ctx is None:  # the parser of click does not always set it
        return "add --help to the command to see its options"
    similar = getattr(error, "possibilities", None) or ()
    if similar:
        return f"did you mean {' or '.join(sorted(similar)[:SIMILAR_MAX])}?"
    context = error.ctx
    usage = " ".join(context.get_usage().split()).removeprefix("Usage: ")
    return f"usage: {usage}; `{context.command_path} --help` shows all options"


def discard_output() -> int:
    """Redirect closed standard output (`barnabas consume … | head`) to /dev/null, and return the exit code.

    Otherwise Python would report the closed pipe again when it flushes at exit.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return OUTPUT_CLOSED
