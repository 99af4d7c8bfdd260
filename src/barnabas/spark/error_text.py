"""The cause in the text of Spark's errors, without stack traces of Java and Python. Pure.

An error that Barnabas raises in a Python worker of Spark arrives as text: its traceback is part of the message of a
Java exception. Errors of Spark and Java are recognised by their text too.
"""

from __future__ import annotations

import re

from barnabas.errors import BarnabasError, ConfigError

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
JAVA_CLASS = re.compile(r"^(?:[a-z][\w$]*\.)+[\w$]+(?:Exception|Error): (?:requirement failed: )?")
LABEL = re.compile(r"^\[(?P<condition>[A-Z_.]+)\] ")
STATE = re.compile(r"\.? ?SQLSTATE: \w+\s*")


class QueryFailed(BarnabasError):
    """Spark ran the query and failed."""


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


def brief_text(text: str) -> str:
    """Return one line for the text of a Java exception with its stack.

    >>> brief_text("java.lang.IllegalStateException: requirement failed: no rows\\n\\tat org.x.Y(Y.java:1)")
    'no rows'
    """
    without_stack = text.partition("\n\tat ")[0]
    return str(python_cause(text) or message_lines(JAVA_CLASS.sub("", without_stack))[0])


def message_lines(text: str) -> list[str]:
    """Return the lines of the message and of the quoted query, without label, SQL state and Java stack."""
    text = STATE.sub(" ", LABEL.sub("", NOISE.sub("", text)))
    text = re.sub(r"\s*== SQL.*==", "\n", text)
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not re.match(r"\s+at [\w.$]+\(", line)]
    return lines or ["Spark failed without a message"]
