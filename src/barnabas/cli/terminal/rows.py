"""Rows of Spark as text: a table, JSON (one object per line) or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from barnabas.cli.terminal.output import FIT, format_table, plural, to_json

TABLE_ROWS_MAX = 1000


def json_value(value: Any) -> Any:
    """Return a value that JSON can represent. Bytes become text, with backslash escapes if they are not UTF-8."""
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
            return {str(json_value(key)): json_value(inner) for key, inner in value.items()}
        case _ if hasattr(value, "toPython"):
            return json_value(value.toPython())
        case _ if hasattr(value, "asDict"):
            return {name: json_value(value[name]) for name in value.asDict()}
        case list() | tuple():
            return [json_value(inner) for inner in value]
        case _:
            return str(value)


def with_utc_offsets(types: Sequence[Any], rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Add the offset from UTC to timestamps. `types` are Spark's types of the columns.

    Spark returns a timestamp and a timestamp_ntz as the same naive datetime. A timestamp_ntz stays unchanged.
    """
    if not any(has_timestamps(column) for column in types):
        return [tuple(row) for row in rows]
    return [
        tuple(with_offset(column, value) for column, value in zip(types, row, strict=True))
        for row in rows
    ]


def has_timestamps(spark_type: Any) -> bool:
    return '"timestamp"' in spark_type.json()


def with_offset(spark_type: Any, value: Any) -> Any:
    if value is None or not has_timestamps(spark_type):
        return value
    match spark_type.typeName():
        case "timestamp":
            return value.astimezone()
        case "array":
            return [with_offset(spark_type.elementType, inner) for inner in value]
        case "map":
            return {
                with_offset(spark_type.keyType, key): with_offset(spark_type.valueType, inner)
                for key, inner in value.items()
            }
        case "struct":
            return {
                field.name: with_offset(field.dataType, inner)
                for field, inner in zip(spark_type.fields, value, strict=True)
            }
        case _:
            return value


def table_cell(value: Any) -> Any:
    """Return a value for a table or CSV: nested values and booleans become JSON, None an empty text."""
    value = json_value(value)
    if isinstance(value, dict | list | bool):
        return to_json(value)
    return "" if value is None else value


def json_lines(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    lines = [to_json(dict(zip(names, map(json_value, row), strict=True))) for row in rows]
    return "".join(f"{line}\n" for line in lines).encode()


def csv_lines(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [[table_cell(value) for value in row] for row in rows]
    )
    return text.getvalue().encode("utf-8", "backslashreplace")


def table_text(
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    more: bool = False,
    width: int | None = FIT,
) -> bytes:
    """Return a table, cut to `width` as in `format_table`, and the number of rows.

    `more`: these are only the first rows.
    """
    shown = format_table(
        names,
        [[None if value is None else table_cell(value) for value in row] for row in rows],
        width=width,
        null="NULL",
    )
    end = f"the first {plural(len(rows), 'row')}" if more else plural(len(rows), "row")
    return f"{shown}\n({end})\n".encode()
