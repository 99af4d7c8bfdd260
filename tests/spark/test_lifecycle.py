"""The lifecycle report on Spark has the same answers as in one process."""

from __future__ import annotations

import random

from pyspark.sql import SparkSession

from barnabas.history.analysis import analyse
from barnabas.history.report import SORT_KEYS
from barnabas.history.spark_analysis import analyse_on_spark
from tests.lifecycle_history import NOW, read_all, sample_history

JUNK = [
    "no event",
    "{}",
    '{"epoch": 1}',
    '{"epoch": "x", "sequence": 2, "at": "then", "what": "topic"}',
    "[1]",
    '{"at":"2026-05-01T08:00:00Z","broker":1,"epoch":1,"sequence":1,"cause":"c","what":"request","id":"X to 2",'
    '"to":2,"topics":["orders"],"partitions":1,"result":"sent"}',
    '{"at":"0001-01-01T00:00:00Z","broker":1,"epoch":1,"sequence":1,"cause":"c","what":"controller","id":"controller",'
    '"before":null,"after":1,"result":"done"}',
    '{"at":"+99999-01-01T00:00:00Z","broker":1,"epoch":9,"sequence":1,"cause":"c","what":"controller",'
    '"id":"controller","before":null,"after":1,"result":"done"}',
    '{"at":"2026-05-01T08:00:00Z","broker":1,"epoch":1,"sequence":1,"what":"partition","id":"orders-0",'
    '"topic":"orders","before":"NewPartition","after":"OfflinePartition","result":"done"}',
]


def test_tables_are_the_same_with_and_without_spark(spark: SparkSession) -> None:
    """Spark gets every event twice, in random order, mixed with malformed records."""
    lines = sample_history().lines()
    shuffled = [*lines, *lines, *JUNK]
    random.Random(7).shuffle(shuffled)
    values = [line.encode() for line in shuffled]
    records = spark.createDataFrame(
        list(enumerate([*values, None])), "offset long, value binary"
    ).repartition(3)
    found, malformed = analyse_on_spark(records, NOW, session_timeout_ms=6000)
    assert malformed == len(JUNK) + 1
    expected = analyse(read_all(lines), NOW, session_timeout_ms=6000)
    assert found.keys() == expected.keys()
    for name, key in SORT_KEYS.items():
        assert expected[name], f"the history has no {name}"
        assert sorted(found[name], key=key) == sorted(expected[name], key=key), name


def test_duplicate_topic_in_event_is_accepted(spark: SparkSession) -> None:
    line = (
        '{"at":"2026-05-01T08:00:00Z","broker":1,"epoch":1,"sequence":1,"cause":"c","what":"request","id":"X to 2",'
        '"to":2,"topics":{"orders":"0","orders":"1"},"partitions":1,"result":"sent"}'
    )
    records = spark.createDataFrame([(0, line.encode())], "offset long, value binary")
    tables, malformed = analyse_on_spark(records, NOW)
    assert malformed == 0
    assert [row["topic"] for row in tables["steps"]] == ["orders"]
