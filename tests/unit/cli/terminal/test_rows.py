from __future__ import annotations

import time
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pyspark.sql.types import (
    ArrayType,
    Row,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from barnabas.cli.terminal.rows import (
    csv_lines,
    json_lines,
    json_value,
    table_text,
    with_utc_offsets,
)


def test_spark_values_become_plain_values() -> None:
    assert json_value(b"\xffab") == "\\xffab"
    assert json_value({"a": [Decimal("1.50"), None]}) == {"a": ["1.50", None]}
    assert json_value(datetime(2024, 5, 1, tzinfo=UTC)) == "2024-05-01T00:00:00+00:00"


def test_row_is_one_line_of_json_or_csv() -> None:
    rows = [(b"k0", 334, None), ("a,b", 1, [1, 2])]
    assert json_lines(["key", "n", "x"], rows) == (
        b'{"key": "k0", "n": 334, "x": null}\n{"key": "a,b", "n": 1, "x": [1, 2]}\n'
    )
    assert csv_lines(rows) == b'k0,334,\n"a,b",1,"[1, 2]"\n'


def test_table_shows_row_count() -> None:
    assert table_text(["key", "n"], [(b"k0", 334)]) == b"KEY    N\nk0   334\n(1 row)\n"
    assert table_text(["n"], [(1,), (2,)], more=True).endswith(b"(the first 2 rows)\n")


def test_null_differs_from_empty_text_in_table() -> None:
    rows = [("", 334), (None, None)]
    assert table_text(["key", "n"], rows) == b"KEY      N\n       334\nNULL  NULL\n(2 rows)\n"


def test_table_is_truncated_only_to_given_width() -> None:
    long = "x" * 500
    assert long.encode() in table_text(["key"], [(long,)], width=None)
    assert long.encode() not in table_text(["key"], [(long,)], width=100)


def test_timestamp_has_offset_and_timestamp_ntz_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        moment = datetime(2024, 5, 1, 12)  # noqa: DTZ001 - as Spark hands it over
        nested = StructType([StructField("at", TimestampType())])
        kinds = [TimestampType(), TimestampNTZType(), ArrayType(nested), TimestampType()]
        found = with_utc_offsets(kinds, [(moment, moment, [Row(at=moment)], None)])
        assert json_lines(["a", "b", "c", "d"], found) == (
            b'{"a": "2024-05-01T12:00:00+05:30", "b": "2024-05-01T12:00:00", '
            b'"c": [{"at": "2024-05-01T12:00:00+05:30"}], "d": null}\n'
        )
    finally:
        monkeypatch.undo()
        time.tzset()
