"""Checks of a query before Spark starts: is it a query, and does the checkpoint belong to it?

`barnabas sql` runs queries only. A statement that writes would seem to succeed, but its result would be lost.
"""

from __future__ import annotations

import re
from pathlib import Path

from barnabas.errors import ConfigError
from barnabas.spark.cache import write_if_missing

QUERY_WORDS = (
    "select", "with", "from", "values", "table", "show", "describe", "desc", "explain",
)  # fmt: skip
SPACE_OR_COMMENT = re.compile(r"(?:\s|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
STRING_OR_COMMENT = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/""", re.DOTALL
)
INSERT = re.compile(r"\binsert\s+(?:into|overwrite)\b", re.IGNORECASE)
QUERY_FILE = "query.sql"
"""File in the checkpoint with the query that it belongs to."""
SHOWN_MAX = 200


def check_is_query(query: str) -> None:
    """Raise ConfigError unless the text is a query. The message names the commands for other statements."""
    statement = SPACE_OR_COMMENT.sub("", query, count=1)
    if not statement:
        raise ConfigError("SQL", "the query is empty")
    first = re.match(r"\w*", statement)
    word = first[0].lower() if first else ""
    is_query = word in QUERY_WORDS or statement.startswith("(")
    if is_query and not INSERT.search(STRING_OR_COMMENT.sub(" ", statement)):
        return
    raise ConfigError(
        "SQL",
        f"{'insert' if is_query else word or statement[0]!r}: only queries are supported here; a query starts with "
        f"{', '.join(QUERY_WORDS[:-1])} or {QUERY_WORDS[-1]}. To write records use `barnabas produce`, for other "
        "statements `barnabas spark` or PySpark",
    )


def normalise_query(query: str) -> str:
    """Return the query with single spaces, and without a last semicolon."""
    return " ".join(query.strip().rstrip(";").split())


def check_same_query(checkpoint: Path, query: str) -> None:
    """Raise ConfigError if the checkpoint belongs to another query. A checkpoint without QUERY_FILE is accepted."""
    try:
        stored = (checkpoint / QUERY_FILE).read_text("utf-8", "replace")
    except FileNotFoundError:
        return
    shown = normalise_query(stored)
    if shown != normalise_query(encodable(query)):
        shown = shown if len(shown) <= SHOWN_MAX else shown[: SHOWN_MAX - 1] + "…"
        raise ConfigError(
            "--to", f"{checkpoint.parent} belongs to another query; choose another --to: {shown}"
        )


def claim(checkpoint: Path, query: str) -> bool:
    """Write the query to a new checkpoint. Returns False if the checkpoint already has a query."""
    path = checkpoint / QUERY_FILE
    if path.exists():
        return False
    write_if_missing(path, f"{encodable(query)}\n".encode())
    return True


def unclaim(checkpoint: Path) -> None:
    (checkpoint / QUERY_FILE).unlink(missing_ok=True)


def encodable(query: str) -> str:
    return query.encode("utf-8", "backslashreplace").decode()
