"""Reader: the events of `__state_changes` as DataFrames, deduplicated, by topic and by life of the topic.

    records of __state_changes ─► events ─► about topics ─► with lives

Events are published at least once, and those of a broker that was down are published late. They are deduplicated and
sorted by (epoch, sequence). Malformed events (event.py) are skipped.

A name may be used again after its topic was deleted. Each topic of that name is a life, counted from 1. A life begins
with the first partition that is created after a deletion. The client's request may be recorded just before that: if it
does not wait for leaders, its response precedes the work of the controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from barnabas.history.event import normalise

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

STATE_CHANGES = "__state_changes"
SCHEMA = """
    at timestamp, broker int, epoch int, sequence long, cause string, what string, id string, result string, why string,
    topic string, partition int, replica int, before string, after string,
    by string, host string, asked_at timestamp, automatic boolean,
    leader int, leader_epoch int, replicas array<int>,
    to int, topics map<string, string>, part int, answers long
"""
"""The fields that the report needs. `before` and `after` of a controller are broker ids, here as text."""

ORDER = ("epoch", "sequence")


def read_records(records: DataFrame) -> DataFrame:
    """Return one row per record with its `event`, which is null for a malformed record.

    Values are validated first, because from_json fails on a repeated key and returns parts of invalid events.
    """
    valid = f.udf(normalise, "string", useArrow=False)(f.col("value").cast("binary"))
    return records.select(f.from_json(valid, SCHEMA).alias("event"))


def distinct_events(read: DataFrame) -> DataFrame:
    """Return one row per event from the rows of `read_records`."""
    return read.select("event.*").where("epoch is not null").dropDuplicates(["epoch", "sequence"])


def about_topics(events: DataFrame) -> DataFrame:
    """Return one row per event and topic. A request has a row for each topic, and `answered_at` if it was answered.

    epoch 7, sequence 19: LeaderAndIsr to 2, topics orders and clicks, answered by sequence 31
    → orders, request LeaderAndIsr, to 2, answered_at = the time of 31; and the same for clicks
    """
    named = events.where("topic is not null and what in ('partition', 'replica', 'topic')")
    answers = events.where("answers is not null").selectExpr(
        *("epoch", "answers as first_sequence", "at as answered_at"),
        *("result as answer", "why as answer_why"),
    )
    # A request about very many topics is several events, and the response refers to the first.
    first = f.col("sequence") - f.coalesce(f.col("part"), f.lit(1)) + 1
    requests = (
        events.where("what = 'request' and answers is null and topics is not null")
        .withColumn("first_sequence", first)
        .join(
            answers.dropDuplicates(["epoch", "first_sequence"]), ["epoch", "first_sequence"], "left"
        )
        .withColumn("topic", f.explode(f.map_keys("topics")))
    )
    rows = named.unionByName(requests, allowMissingColumns=True).drop("topics", "first_sequence")
    return rows.where(f.col("topic") != STATE_CHANGES)


def with_lives(rows: DataFrame) -> DataFrame:
    """Add the column `life` to the rows of `about_topics`.

    created New Online NonExistent │ created New Online     (events of one name, in order)
       1     1    1        1       │    2     2    2

    If the history starts in the middle of a life, that life is number 1.
    """
    marked = rows.withColumn("mark", creation_or_deletion())
    marks = (
        marked.where("mark is not null")
        .withColumn("mark_before", f.lag("mark").over(ordered_window("topic")))
        .withColumn("mark_after", f.lead("mark").over(ordered_window("topic")))
        .withColumn("begins", begins_another_life().cast("int"))
        .select("topic", *ORDER, "begins")
    )
    begun_so_far = f.sum("begins").over(
        ordered_window("topic").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return (
        marked.join(marks, ["topic", *ORDER], "left")
        .withColumn("life", (f.coalesce(begun_so_far, f.lit(0)) + 1).cast("int"))
        .drop("mark", "begins")
    )


def creation_or_deletion() -> Column:
    """Return the mark of an event that may begin or end a life, else null."""
    return f.expr("""
        case when what = 'partition' and after = 'NewPartition' and result = 'done' then 'created'
             when what = 'topic' and after = 'created' then 'requested'
             when what = 'partition' and after = 'NonExistentPartition' and result = 'done' then 'deleted'
        end
    """)


def begins_another_life() -> Column:
    """Return whether a row starts a new life: the first creation after a deletion, or the request for that creation if
    it was recorded before. A request that was recorded later starts no life, even after a deletion."""
    is_early_request = (f.col("mark") == "requested") & f.col("mark_after").eqNullSafe("created")
    return f.col("mark_before").eqNullSafe("deleted") & (
        (f.col("mark") == "created") | is_early_request
    )


def ordered_window(*columns: str) -> WindowSpec:
    return Window.partitionBy(*columns).orderBy(*ORDER)


def millis(start: Column, end: Column) -> Column:
    return f.unix_millis(end) - f.unix_millis(start)
