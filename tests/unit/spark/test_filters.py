from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from barnabas.model import TopicPartition
from barnabas.spark.filters import OFFSET_MAX, parse_filters

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
NOON_MS = 1_793_534_400_000


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], ["a-0", "a-1", "b-0"]),
        ([EqualTo(("topic",), "a")], ["a-0", "a-1"]),
        ([In(("topic",), ("b", "c"))], ["b-0"]),
        ([EqualTo(("PARTITION",), 0)], ["a-0", "b-0"]),
        ([GreaterThan(("partition",), 0)], ["a-1"]),
        ([LessThanOrEqual(("partition",), 0), EqualTo(("topic",), "b")], ["b-0"]),
        ([In(("partition",), (None, 1))], ["a-1"]),
        ([EqualTo(("partition",), 7)], []),
    ],
)
def test_topic_and_partition_exclude_partitions(filters: list[Filter], expected: list[str]) -> None:
    found = parse_filters(filters)
    partitions = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
    assert [str(each) for each in partitions if found.includes(each)] == expected


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], (0, OFFSET_MAX)),
        ([EqualTo(("offset",), 5)], (5, 5)),
        ([GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 9)], (5, 9)),
        ([GreaterThan(("offset",), 3), GreaterThan(("offset",), 5)], (5, OFFSET_MAX)),
        ([In(("offset",), (9, 4, None, 6))], (4, 9)),
        ([LessThanOrEqual(("offset",), 4), EqualTo(("offset",), 6)], (6, 4)),
        ([EqualTo(("offset",), None)], (0, OFFSET_MAX)),
        ([In(("offset",), (None,))], (0, OFFSET_MAX)),
        ([Not(EqualTo(("offset",), 5))], (0, OFFSET_MAX)),
        ([IsNotNull(("offset",)), StringStartsWith(("topic",), "a")], (0, OFFSET_MAX)),
    ],
)
def test_offsets_have_first_and_last(filters: list[Filter], expected: tuple[int, int]) -> None:
    assert parse_filters(filters).offsets() == expected


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], None),
        ([EqualTo(("timestamp",), NOON)], NOON_MS),
        ([GreaterThan(("timestamp",), NOON + timedelta(microseconds=999))], NOON_MS),
        ([In(("timestamp",), (NOON, NOON - timedelta(seconds=1)))], NOON_MS - 1000),
        ([GreaterThan(("timestamp",), NOON.astimezone(timezone(timedelta(hours=5))))], NOON_MS),
        ([GreaterThan(("timestamp",), datetime(1960, 1, 1, tzinfo=UTC))], None),
        (
            [EqualTo(("timestamp",), datetime(1970, 1, 1, tzinfo=UTC) - timedelta(milliseconds=1))],
            None,
        ),
        ([GreaterThanOrEqual(("timestamp",), datetime(1970, 1, 1, tzinfo=UTC))], 0),
        ([LessThan(("timestamp",), NOON)], None),
        ([GreaterThan(("timestamp",), NOON.replace(tzinfo=None))], None),
    ],
)
def test_timestamps_have_a_lower_bound(filters: list[Filter], expected: int | None) -> None:
    assert parse_filters(filters).least_timestamp() == expected
