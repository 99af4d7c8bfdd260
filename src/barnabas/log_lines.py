"""Log formatter that keeps every message on one printable line.

`barnabas up` and `barnabas broker` install it on their only handler, so that it covers every logger of the process,
including those of libraries. Logger calls need no escaping of their own.

A program that embeds Barnabas configures its own logging. It can give this formatter to its handlers:
`handler.setFormatter(PrintableFormatter(...))`.
"""

from __future__ import annotations

import logging

from barnabas.printable import LINE_MAX, NAME_MAX, printable

TRACEBACK_INDENT = "    "


class PrintableFormatter(logging.Formatter):
    """Escapes the message. A traceback follows on separate, indented lines.

    An exception's message may contain newlines. Because of the indentation, a line that starts at the left margin is
    always the start of a log entry.
    """

    def format(self, record: logging.LogRecord) -> str:
        record.message = format_message(record)
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        lines = [printable(self.formatMessage(record))]
        # Not `record.exc_text`: the formatter of another handler may have cached an unescaped text in it.
        if record.exc_info:
            lines += indent_lines(self.formatException(record.exc_info))
        if record.stack_info:
            lines += indent_lines(self.formatStack(record.stack_info))
        return "\n".join(lines)


def format_message(record: logging.LogRecord) -> str:
    """Return the message, escaped and limited to LINE_MAX characters.

    If it is too long, each argument is cut first, so that the text after a long name is kept.
    """
    message = record.getMessage()
    if len(message) > LINE_MAX and isinstance(record.args, tuple):
        message = str(record.msg) % tuple(map(shorten_argument, record.args))
    return printable(message, LINE_MAX)


def shorten_argument(argument: object) -> object:
    return argument if isinstance(argument, int | float) else printable(str(argument), NAME_MAX)


def indent_lines(text: str) -> list[str]:
    return [TRACEBACK_INDENT + printable(line, LINE_MAX) for line in text.split("\n")]
