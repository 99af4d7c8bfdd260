"""Filters on topic, partition, offset and timestamp read only the matching part of a topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from barnabas.cli.spark.sql import SqlOutput, reads_once, run_stream
from barnabas.client.cluster import Cluster
from barnabas.errors import ConfigError
from barnabas.spark.filters import FILTER_PUSHDOWN
from barnabas.spark.tables import register_topics
from tests.spark.topics import Topics, numbered

EVENTS = 100
HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def topic(topics: Topics) -> Iterator[str]:
    """Two partitions of 100 records, one record per hour. The last record of partition 1 is the oldest one."""
    name = topics.create(partitions=2)
    for partition in (0, 1):
        times = [START_MS + HOUR_MS * index for index in range(EVENTS)]
        if partition == 1:
            times[-1] = START_MS - HOUR_MS
        topics.write(
            name, numbered(EVENTS, "abc"[partition]), partition=partition, timestamps=times
        )
    yield name


def rows_read(rows: DataFrame) -> tuple[int, int]:
    """Run a query; returns the number of its rows, and of the rows that the source read."""
    found = len(rows.collect())
    metrics: dict[str, Any] = {}
    plan = rows._jdf.queryExecution().executedPlan()
    stack = [plan]
    while stack:
        node = stack.pop()
        if "BatchScan" in node.nodeName():
            values = node.metrics()
            metrics["read"] = values.apply("numOutputRows").value()
        children = node.children()
        stack += [children.apply(index) for index in range(children.size())]
        if node.nodeName() == "AdaptiveSparkPlan":
            stack.append(node.executedPlan())
    return found, metrics["read"]


@pytest.fixture(autouse=True)
def pushdown(topics: Topics) -> Iterator[None]:
    topics.spark.conf.set(FILTER_PUSHDOWN, "true")
    yield
    topics.spark.conf.unset(FILTER_PUSHDOWN)


@pytest.mark.parametrize(
    ("condition", "expected", "read_max"),
    [
        ("partition = 0", 100, 100),
        ("partition = 0 and offset < 10", 10, 11),
        ("partition in (1, 5) and offset between 90 and 94", 5, 5),
        ("offset = 7", 2, 2),
        ("offset in (3, 9)", 4, 14),
        ("offset > 97", 4, 6),
        ("topic = 'nothing'", 0, 0),
        ("partition = 9", 0, 0),
        (f"timestamp >= timestamp_millis({START_MS + 98 * HOUR_MS})", 3, 4),
        (f"timestamp = timestamp_millis({START_MS - HOUR_MS})", 1, 200),
        (f"timestamp < timestamp_millis({START_MS + HOUR_MS})", 3, 200),
        ("timestamp > '2099-01-01' and partition = 0", 0, 0),
        ("partition = 0 or offset < 10", 110, 200),
        ("offset % 50 = 0", 4, 200),
    ],
)
def test_filters_limit_what_is_read(
    topics: Topics, topic: str, condition: str, expected: int, read_max: int
) -> None:
    found, read = rows_read(topics.reader(subscribe=topic).load().where(condition))
    assert found == expected
    assert read <= read_max


def test_filters_of_several_queries_are_independent(topics: Topics, topic: str) -> None:
    topics.spark.conf.unset(FILTER_PUSHDOWN)
    every = topics.reader(subscribe=topic).load()
    few = every.where("partition = 0 and offset < 10")
    assert rows_read(few) == (10, 200)
    assert every.count() == 200
    assert few.join(every.where("partition = 1"), "offset").count() == 10


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select * from t where offset < 3", True),
        ("select * from t x join t y on x.offset = y.offset", False),
        ("select (select count(*) from t where offset < 5), count(*) from t where true", False),
        ("with x as (select * from t ) select 1 from x union all select 2 from x", False),
    ],
)
def test_only_a_topic_that_is_read_once_is_filtered(
    topics: Topics, topic: str, query: str, expected: bool
) -> None:
    register_topics(topics.spark, [topic], Cluster(topics.servers))
    assert reads_once(topics.spark.sql(query.replace(" t ", f" `{topic}` "))) is expected


def test_follow_needs_a_query_that_reads_a_topic(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="the query reads no topic"):
        run_stream(spark.range(3), SqlOutput.JSON, None, "select 1")
