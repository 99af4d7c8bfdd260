"""Translation of Spark's errors: the cause in a few lines, without stack traces of Java and Python.

An error that Barnabas raises in a Python worker of Spark arrives as text: its traceback is part of the message of a
Java exception. Errors of Spark and Java are recognised by their text too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from barnabas.cli.terminal.failure import CONTINUATION, ErrorWithHint, similar_names
from barnabas.errors import ApiError, BarnabasError, ConfigError, ErrorCode
from barnabas.spark.tables import quote_topic

PYTHON_ERROR = re.compile(
    r"^(?:barnabas\.[\w.]+\.)(?P<kind>\w+): (?P<message>.+)$"
    r"|^(?P<python>[A-Za-z_][\w.]*(?:Error|Exception)): (?P<why>.+)$",
    re.MULTILINE,
)
JAVA_ERROR = re.compile(
    r"^(?:: |Caused by: )[\w.$]+(?:Exception|Error): (?P<message>.*\S.*)$", re.MULTILINE
)
NOISE = re.compile(
    r"\n+(?:JVM stacktrace|== (?:Physical|DataFrame)|Driver stacktrace).*"
    r"|;\s*line \d+ pos \d+;?\n.*",
    re.DOTALL,
)
LABEL = re.compile(r"^\[(?P<condition>[A-Z_.]+)\] ")
STATE = re.compile(r"\.? ?SQLSTATE: \w+\s*")
LINES_MAX = 8
SQL_ERROR_PREFIXES = (
    "PARSE",
    "UNRESOLVED",
    "DATATYPE_MISMATCH",
    "MISSING",
    "INVALID",
    "STREAMING_OUTPUT_MODE",
)


class QueryFailed(BarnabasError):
    """Spark ran the query and failed."""


JAVA_ENDED = (
    "the JVM of Spark ended during the command: it was killed, or the machine ran out of memory"
)


def translate(error: Exception, topics: Iterable[str]) -> BarnabasError:
    """Return the failure as an error that the command line can show. `topics` are suggested for an unknown table."""
    text = str(error).strip()
    if has_java_ended(error, text):
        return QueryFailed(JAVA_ENDED)
    condition = error_condition(error, text)
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        return unknown_table_error(text, topics)
    if cause := python_cause(text):
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


def python_cause(text: str) -> BarnabasError | None:
    """Return the error of a Python worker, or None. An error of Barnabas takes precedence over others in the text."""
    if "Traceback" not in text:
        return None
    found = list(PYTHON_ERROR.finditer(text))
    if not found:
        return None
    cause = next((match for match in found if match["kind"]), found[-1])
    # Not for its subclass UnreachableBrokers: the cluster is down, but no setting is wrong.
    if cause["kind"] == ConfigError.__name__:
        key, _, why = cause["message"].partition(": ")
        return ConfigError(key, why or "cannot be used")
    return QueryFailed(cause["message"] or f"{cause['python']}: {cause['why']}")


def java_cause(text: str) -> str:
    """Return the message of the innermost Java exception, or `text` if PySpark has extracted a message."""
    if not text.startswith("An error occurred while calling"):
        return text
    found = [match["message"] for match in JAVA_ERROR.finditer(text)]
    return found[-1] if found else text


def message_lines(text: str) -> list[str]:
    """Return the lines of the message and of the quoted query, without label, SQL state and Java stack."""
    text = STATE.sub(" ", LABEL.sub("", NOISE.sub("", text)))
    text = re.sub(r"\s*== SQL.*==", "\n", text)
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not re.match(r"\s+at [\w.$]+\(", line)]
    return lines or ["Spark failed without a message"]
