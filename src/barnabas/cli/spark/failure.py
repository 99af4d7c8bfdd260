"""What Spark said, in a few lines: the cause, without the stacks of two languages around it.

An error of ours that was raised in one of Spark's Python processes arrives as the text of a traceback within the
message of a Java exception; its last line is what its author meant to be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from barnabas.cli.terminal.failure import CONTINUATION, Hinted, near_names
from barnabas.errors import ApiError, BarnabasError, ConfigError, ErrorCode
from barnabas.spark.tables import quoted

OURS = re.compile(
    r"^(?:barnabas\.[\w.]+\.)(?P<kind>\w+): (?P<message>.+)$"
    r"|^(?P<python>[A-Za-z_][\w.]*(?:Error|Exception)): (?P<why>.+)$",
    re.MULTILINE,
)
JAVA = re.compile(
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
WRONG_SQL = (
    "PARSE",
    "UNRESOLVED",
    "DATATYPE_MISMATCH",
    "MISSING",
    "INVALID",
    "STREAMING_OUTPUT_MODE",
)


class QueryFailed(BarnabasError):
    """Spark ran the query and failed."""


JAVA_IS_GONE = (
    "Java, in which Spark runs, has ended in the midst of it: "
    "it was killed, or the machine had too little memory for it"
)


def translated(error: Exception, topics: Iterable[str]) -> BarnabasError:
    """The same failure as an error the command line knows how to show."""
    text = str(error).strip()
    if is_loss_of_java(error, text):
        return QueryFailed(JAVA_IS_GONE)
    condition = condition_of(error, text)
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        return no_table(text, topics)
    if ours := last_cause(text):
        return ours
    lines = told_lines(java_cause(text))
    if condition.startswith(WRONG_SQL):
        return ConfigError("SQL", CONTINUATION.join(lines[:LINES_MAX]))
    return QueryFailed(lines[0])


def is_loss_of_java(error: Exception, text: str) -> bool:
    """py4j says it in several ways; the last is an error without anything that Java would have said of it."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    if isinstance(error, ConnectionError | Py4JNetworkError):
        return True
    return type(error) is Py4JError and "Trace:" not in text


def condition_of(error: Exception, text: str) -> str:
    getter = getattr(error, "getCondition", None)
    found = LABEL.match(text)
    return str((getter() if getter else None) or (found["condition"] if found else ""))


def no_table(text: str, topics: Iterable[str]) -> BarnabasError:
    found = re.search(r"table or view (.+?) cannot be found", text)
    name = found[1].replace("`.`", ".").strip("`") if found else "?"
    known = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    near = near_names(name, topics)
    hint = (
        "did you mean " + " or ".join(quoted(topic) for topic in near) + "?"
        if near
        else "`barnabas topics list` shows what there is"
    )
    return Hinted(known, f"there is no topic {name!r}", hint)


def last_cause(text: str) -> BarnabasError | None:
    """What a Python process of Spark died of; our own words if it was an error of ours."""
    if "Traceback" not in text:
        return None
    found = list(OURS.finditer(text))
    if not found:
        return None
    cause = next((match for match in found if match["kind"]), found[-1])
    # Of a cluster that went away while a query ran, as of one that was never there: nobody has written anything wrong.
    if cause["kind"] == "ConfigError" and "no broker reached" not in cause["message"]:
        key, _, why = cause["message"].partition(": ")
        return ConfigError(key, why or "cannot be used")
    return QueryFailed(cause["message"] or f"{cause['python']}: {cause['why']}")


def java_cause(text: str) -> str:
    """Of an error that PySpark did not take apart: what the innermost exception of Java says."""
    if not text.startswith("An error occurred while calling"):
        return text
    found = [match["message"] for match in JAVA.finditer(text)]
    return found[-1] if found else text


def told_lines(text: str) -> list[str]:
    """The message without its label, its SQL state and what follows of Java; the marked query is kept."""
    text = STATE.sub(" ", LABEL.sub("", NOISE.sub("", text)))
    text = re.sub(r"\s*== SQL.*==", "\n", text)
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not re.match(r"\s+at [\w.$]+\(", line)]
    return lines or ["Spark failed without a word"]
