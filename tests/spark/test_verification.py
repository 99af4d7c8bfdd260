"""Verification of copies: which differences it finds."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame

from barnabas.jobs.errors import CopyDiffers
from barnabas.jobs.verification import compare_records, hash_rows, require_equal
from tests.spark.topics import Topics

COUNT = 5000
"""More than one block of positions."""
COLUMNS = {
    "partition": "cast(0 as int)",
    "position": "id",
    "key": "cast(concat('k', id) as binary)",
    "value": "cast(concat('v', id) as binary)",
    "headers": "array(named_struct('key', 'h', 'value', cast(null as binary)))",
    "timestamp": "timestamp_millis(id)",
}


def records(topics: Topics, where: str = "true", **changes: str) -> DataFrame:
    """Records with changed columns: `changes` are SQL expressions."""
    columns = {**COLUMNS, **changes}
    rows = topics.spark.range(0, COUNT, 1, 2).where(where)
    return rows.selectExpr(*[f"{text} as {name}" for name, text in columns.items()])


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({}, None),
        (
            {"value": "cast(if(id = 4500, 'v450O', concat('v', id)) as binary)"},
            "4500: value differs",
        ),
        ({"where": "id <> 4999"}, "4999: the record is missing in the copy"),
        # Two swapped records.
        (
            {"position": "case id when 4500 then 4501 when 4501 then 4500 else id end"},
            "4500: key and value and timestamp differ",
        ),
    ],
)
def test_first_difference_is_reported(
    topics: Topics, changes: dict[str, str], difference: str | None
) -> None:
    found = compare_records(records(topics), records(topics, **changes))
    assert found.expected == COUNT
    if difference is None:
        assert found.difference is None
        assert require_equal(found, "a", "b", "run it again") == COUNT
        return
    assert found.difference == f"partition 0, position {difference}"
    with pytest.raises(CopyDiffers, match=f"b differs from a: .*{difference}.*; run it again"):
        require_equal(found, "a", "b", "run it again")


def test_hash_tells_null_from_empty_and_moved_fields_apart(topics: Topics) -> None:
    """Spark's own hash ignores null, so that (null, x) and (x, null) would be equal."""
    content = [
        (None, b"x", None),
        (b"", b"x", None),
        (b"x", None, None),
        (b"x", b"x", None),
        (b"x", b"x", [("a", None), ("b", b"x")]),
        (b"x", b"x", [("a", b"x"), ("b", None)]),
        (b"x", b"x", [("ab", b"x")]),
        (b"x", b"x", []),
    ]
    schema = "key binary, value binary, headers array<struct<key string, value binary>>"
    frame = topics.spark.createDataFrame(content, schema).coalesce(1)
    hashes = [row.hash for row in hash_rows(frame.selectExpr("*", "now() as timestamp")).collect()]
    assert hashes[3] == hashes[7]  # null headers are no headers
    assert len(set(hashes)) == len(content) - 1


def test_doubled_record_is_found(topics: Topics) -> None:
    extra = records(topics, where="id = 7")
    found = compare_records(records(topics), records(topics).union(extra).union(extra))
    assert found == (
        COUNT,
        COUNT + 2,
        "partition 0, position 7: the source has 1 records, the copy 3",
    )
