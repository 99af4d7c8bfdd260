"""Translation of Spark's errors for the commands: the cause in a few lines, and a hint (see spark/error_text.py)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from barnabas.cli.terminal.failure import CONTINUATION, ErrorWithHint, similar_names
from barnabas.errors import ApiError, BarnabasError, ConfigError, ErrorCode
from barnabas.spark.error_text import (
    LABEL,
    QueryFailed,
    java_cause,
    message_lines,
    python_cause,
)
from barnabas.spark.tables import quote_topic

LINES_MAX = 8
SQL_ERROR_PREFIXES = (
    "PARSE",
    "UNRESOLVED",
    "DATATYPE_MISMATCH",
    "MISSING",
    "INVALID",
    "STREAMING_OUTPUT_MODE",
)
NO_OPTION = re.compile(r"; set failOnDataLoss to false to .*")


class SparkEnded(QueryFailed):
    """The JVM of Spark has ended."""

    def __init__(self) -> None:
        why = "it was killed, or the machine ran out of memory"
        super().__init__(f"the JVM of Spark ended during the command: {why}")


def translate(error: Exception, topics: Iterable[str]) -> BarnabasError:
    """Return the failure as an error that the command line can show. `topics` are suggested for an unknown table."""
    text = str(error).strip()
    if has_java_ended(error, text):
        return SparkEnded()
    condition = error_condition(error, text)
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        return unknown_table_error(text, topics)
    if cause := python_cause(text):
        # Commands have no such option.
        if type(cause) is QueryFailed and NO_OPTION.search(str(cause)):
            return QueryFailed(NO_OPTION.sub("; run the command again", str(cause)))
        return cause
    lines = message_lines(java_cause(text))
    if condition.startswith(SQL_ERROR_PREFIXES):
        return ConfigError("SQL", CONTINUATION.join(lines[:LINES_MAX]))
    return QueryFailed(lines[0])


def has_java_ended(error: Exception, text: str) -> bool:
    """Return whether the JVM has ended. py4j raises several errors for this, one of them a plain Py4JError."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    if isinstance(error, ConnectionError | Py4JNetworkError):
        return True
    return type(error) is Py4JError and "Trace:" not in text


def error_condition(error: Exception, text: str) -> str:
    getter = getattr(error, "getCondition", None)
    found = LABEL.match(text)
    return str((getter() if getter else None) or (found["condition"] if found else ""))


def unknown_table_error(text: str, topics: Iterable[str]) -> BarnabasError:
    found = re.search(r"table or view (.+?) cannot be found", text)
    name = found[1].replace("`.`", ".").strip("`") if found else "?"
    error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    near = similar_names(name, topics)
    hint = (
        "did you mean " + " or ".join(quote_topic(topic) for topic in near) + "?"
        if near
        else "`barnabas topics list` shows all topics"
    )
    return ErrorWithHint(error, f"there is no topic {name!r}", hint)
