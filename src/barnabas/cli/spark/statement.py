"""The text of a query, looked at before Spark is started: does it ask, and does a directory belong to it?

`barnabas sql` is for asking. A statement that writes would seem to succeed and leave nothing behind that lasts.
"""

from __future__ import annotations

import re
from pathlib import Path

from barnabas.errors import ConfigError
from barnabas.spark.cache import write_whole

ASKING = (
    "select", "with", "from", "values", "table", "show", "describe", "desc", "explain",
)  # fmt: skip
SPACE_OR_COMMENT = re.compile(r"(?:\s|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
STRING_OR_COMMENT = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/""", re.DOTALL
)
INSERT = re.compile(r"\binsert\s+(?:into|overwrite)\b", re.IGNORECASE)
QUERY_FILE = "query.sql"
"""Within the checkpoint, whose offsets mean nothing to another query."""
SHOWN_MAX = 200


def check_asks(query: str) -> None:
    """ConfigError for whatever is not a question, with the command that is for it."""
    begins = SPACE_OR_COMMENT.sub("", query, count=1)
    if not begins:
        raise ConfigError("SQL", "there is no query")
    first = re.match(r"\w*", begins)
    word = first[0].lower() if first else ""
    if word not in ASKING and not begins.startswith("("):
        raise ConfigError("SQL", f"{word or begins[0]!r} is not for asking; {for_the_rest()}")
    if INSERT.search(STRING_OR_COMMENT.sub(" ", begins)):
        raise ConfigError("SQL", f"'insert' is not for asking; {for_the_rest()}")


def for_the_rest() -> str:
    return (
        f"a query begins with {', '.join(ASKING[:-1])} or {ASKING[-1]}. To write records use "
        "`barnabas produce`, for all else `barnabas spark` or PySpark"
    )


def normalised(query: str) -> str:
    """The same for two texts that differ in white space or the last semicolon only."""
    return " ".join(query.strip().rstrip(";").split())


def check_belongs(checkpoint: Path, query: str) -> None:
    """A checkpoint goes on with the query that began it. One without that file is older than the file."""
    try:
        began = (checkpoint / QUERY_FILE).read_text("utf-8", "replace")
    except FileNotFoundError:
        return
    if normalised(began) != normalised(encodable(query)):
        shown = normalised(began)
        shown = shown if len(shown) <= SHOWN_MAX else shown[: SHOWN_MAX - 1] + "…"
        raise ConfigError(
            "--to", f"{checkpoint.parent} belongs to another query; choose another --to: {shown}"
        )


def claim(checkpoint: Path, query: str) -> bool:
    """Say whose the checkpoint is, before it is used; whether this was not known before."""
    path = checkpoint / QUERY_FILE
    if path.exists():
        return False
    write_whole(path, f"{encodable(query)}\n".encode())
    return True


def unclaim(checkpoint: Path) -> None:
    (checkpoint / QUERY_FILE).unlink(missing_ok=True)


def encodable(query: str) -> str:
    return query.encode("utf-8", "backslashreplace").decode()
