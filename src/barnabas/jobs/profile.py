"""Profile of a topic with Spark, in two passes over its records. No record reaches the driver, only small aggregates.

    1. keys      count_by_key ──► group_by_count     one shuffle of (key, 64-bit hash) per record
    2. ranges    summarize_ranges                    one row per task, no shuffle

The first pass also returns the time span, which determines the time buckets of the second.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import convert

from barnabas.client.cluster import Cluster
from barnabas.jobs.range_summary import (
    SUMMARY_INPUT,
    SUMMARY_SCHEMA,
    RangeSummary,
    summarize_task,
)
from barnabas.jobs.session import default_parallelism
from barnabas.jobs.topic_profile import (
    KEY_TEXT_MAX,
    TOP_KEYS,
    KeyClass,
    TopicProfile,
    bucket_length_ms,
    build_profile,
)
from barnabas.jobs.topic_range import TopicRange, load_range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY_COLUMNS = "key binary, value binary, timestamp timestamp"
RANGE_COLUMNS = "key binary, value binary, partition int, offset long, timestamp timestamp"
RECORDS_PER_TASK = 200_000
"""Records that one task of the shuffle groups, if no key is frequent. They fit in its memory."""


def profile(spark: SparkSession, cluster: Cluster, wanted: TopicRange) -> TopicProfile:
    """Read the range twice and return its profile."""
    from pyspark.sql import Observation, functions

    tasks = max(default_parallelism(spark), wanted.offsets // RECORDS_PER_TASK)
    span = Observation()
    ms = functions.expr("if(timestamp < timestamp_millis(0), null, unix_millis(timestamp))")
    records = load_range(spark, cluster, wanted, KEY_COLUMNS).observe(
        span, functions.min(ms).alias("first"), functions.max(ms).alias("last")
    )
    classes = [key_class(row) for row in group_by_count(count_by_key(records, tasks)).collect()]
    # Without records, Spark removes the observation from the plan, and reading it is an error.
    times: dict[str, Any] = span.get if classes else {"first": None, "last": None}
    first_ms, last_ms = times["first"], times["last"]
    bucket_ms = 1000 if first_ms is None else bucket_length_ms(first_ms, last_ms)
    records = load_range(spark, cluster, wanted, RANGE_COLUMNS)
    summaries = [range_summary(row) for row in summarize_ranges(records, bucket_ms).collect()]
    return build_profile(
        wanted.topic,
        wanted.partitions,
        summaries,
        classes,
        span_ms=None if first_ms is None else (first_ms, last_ms),
        bucket_ms=bucket_ms,
    )


def count_by_key(records: DataFrame, tasks: int) -> DataFrame:
    """Return key, records and repeats of each key. Each distinct value without a key has its own row, with key null.

    Both groupings need one shuffle, because `owner` is part of both. Records without key are spread by their value:
    one task could not group all of them.
    """
    return (
        records.selectExpr("key", "xxhash64(key, value) as content")
        .selectExpr("key", "content", "if(key is null, content, xxhash64(key)) as owner")
        .repartition(tasks, "owner")
        .groupBy("owner", "key", "content")
        .count()
        .groupBy("owner", "key")
        .agg({"count": "sum", "*": "count"})
        .selectExpr("key", "`sum(count)` as records", "`sum(count)` - `count(1)` as repeats")
    )


def group_by_count(keys: DataFrame) -> DataFrame:
    """Return a row for all keys with the same number of records, with the first keys of each. See KeyClass.

    The number of rows grows with the square root of the number of records.
    """
    from pyspark.sql import functions

    return keys.groupBy(functions.expr("key is null").alias("keyless"), "records").agg(
        functions.expr("count(*)").alias("keys"),
        functions.sum("repeats").alias("repeats"),
        functions.expr(f"min_by(substring(key, 1, {KEY_TEXT_MAX}), key, {TOP_KEYS})").alias(
            "examples"
        ),
    )


def summarize_ranges(records: DataFrame, bucket_ms: int) -> DataFrame:
    """Return a row for each range of a partition that a task reads. See RangeSummary."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return records.selectExpr(*SUMMARY_INPUT).mapInArrow(
        partial(summarize_task, bucket_ms=bucket_ms), from_arrow_schema(SUMMARY_SCHEMA)
    )


def key_class(row: Any) -> KeyClass:
    examples = [bytes(key) for key in row.examples or ()]
    return KeyClass(
        keyless=row.keyless,
        records=row.records,
        keys=row.keys,
        repeats=row.repeats,
        examples=examples,
    )


def range_summary(row: Any) -> RangeSummary:
    return convert(row.asDict(recursive=True), RangeSummary)
