"""Log formatters that keep every message on one printable line, as text or JSON.

`barnabas up` and `barnabas broker` install one on their only handler, so that it covers every logger of the process,
including those of libraries. Logger calls need no escaping of their own.

A program that embeds Barnabas configures its own logging. It can give this formatter to its handlers:
`handler.setFormatter(PrintableFormatter(...))`.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from barnabas.printable import LINE_MAX, NAME_MAX, json_escapes, printable

TRACEBACK_INDENT = "    "


class JsonFormatter(logging.Formatter):
    """Formats each entry as one line of JSON, with a traceback in the field `exception`.

    {"time":"2026-05-01T08:00:00.123Z","level":"INFO","logger":"barnabas.broker","message":"broker started id=1"}
    """

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": format_message(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            entry["stack"] = self.formatStack(record.stack_info)
        return json_escapes(json.dumps(entry, separators=(",", ":"), ensure_ascii=False))


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
