"""Rows of Spark on standard output: a table, JSON or CSV. One row is one line of JSON, so that it can be piped on."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from barnabas.cli.output import plural, table

ROWS_OF_A_TABLE = 1000


def plain(value: Any) -> Any:
    """What JSON can say. Bytes are text, with backslashes where they are not UTF-8; a variant is what it holds."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes() | bytearray():
            return bytes(value).decode("utf-8", "backslashreplace")
        case datetime() | date():
            return value.isoformat()
        case Decimal() | timedelta():
            return str(value)
        case dict():
            return {str(plain(key)): plain(inner) for key, inner in value.items()}
        case _ if hasattr(value, "toPython"):
            return plain(value.toPython())
        case _ if hasattr(value, "asDict"):
            return {name: plain(value[name]) for name in value.asDict()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case _:
            return str(value)


def cell(value: Any) -> Any:
    """A value for a table or for CSV: numbers as they are, what is nested as JSON."""
    value = plain(value)
    if isinstance(value, dict | list | bool):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else value


def json_lines(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    lines = [
        json.dumps(dict(zip(names, map(plain, row), strict=True)), ensure_ascii=False)
        for row in rows
    ]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def csv_lines(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [[cell(value) for value in row] for row in rows]
    )
    return text.getvalue().encode("utf-8", "backslashreplace")


def table_text(names: Sequence[str], rows: Sequence[Sequence[Any]], *, more: bool = False) -> bytes:
    """For a null value there is an empty cell."""
    shown = table(names, [[cell(value) for value in row] for row in rows])
    end = f"the first {plural(len(rows), 'row')}" if more else plural(len(rows), "row")
    return f"{shown}\n({end})\n".encode("utf-8", "backslashreplace")
