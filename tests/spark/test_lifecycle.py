"""The report over a history made by hand: every value here was worked out on paper from lifecycle_story.py."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from barnabas.history.analysis import analyse
from barnabas.history.reader import distinct_events, read_records
from barnabas.history.report import Document, Row, collect, document_of, rows_of
from tests.spark.lifecycle_story import NOW, START, story

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


@pytest.fixture(scope="module")
def document(spark: SparkSession) -> Document:
    """Every event comes twice, in any order, among lines that are none."""
    lines = story().lines() * 2 + JUNK
    random.Random(7).shuffle(lines)
    records = spark.createDataFrame([(line,) for line in [*lines, None]], "value string")
    tables = collect(analyse(distinct_events(read_records(records)).localCheckpoint(), NOW))
    return document_of(rows_of(tables), servers="here:9092", now=NOW)


def test_a_repeated_topic_in_a_request_fails_no_query(spark: SparkSession) -> None:
    line = (
        '{"at":"2026-05-01T08:00:00Z","broker":1,"epoch":1,"sequence":1,"cause":"c","what":"request","id":"X to 2",'
        '"to":2,"topics":{"orders":"0","orders":"1"},"partitions":1,"result":"sent"}'
    )
    records = spark.createDataFrame([(line,)], "value string")
    (event,) = distinct_events(read_records(records)).collect()
    assert event["topics"] == {"orders": "1"}


def test_malformed_records_can_be_counted(spark: SparkSession) -> None:
    lines = [*story().lines(), *JUNK, None]
    records = spark.createDataFrame([(line,) for line in lines], "value string")
    assert read_records(records).where("event is null").count() == len(JUNK) + 1


def ms(at: datetime | None) -> int | None:
    return None if at is None else round((at - START).total_seconds() * 1000)


def topic(document: Document, name: str, life: int = 1) -> Row:
    found: list[Row] = [
        row for row in document["topics"] if (row["topic"], row["life"]) == (name, life)
    ]
    assert len(found) == 1
    return found[0]


def rows(document: Document, table: str, name: str, *columns: str) -> list[Any]:
    return sorted(
        tuple(ms(row[each]) if isinstance(row[each], datetime) else row[each] for each in columns)
        for row in document[table]
        if row["topic"] == name
    )


def test_every_event_counts_once_whatever_else_is_in_the_topic(document: Document) -> None:
    assert document["history"]["events"] == len(story().events)
    assert (ms(document["history"]["from"]), ms(document["history"]["until"])) == (0, 8100)


def test_each_controller_has_its_predecessor_and_what_it_took_to_take_over(
    document: Document,
) -> None:
    assert [
        (
            row["epoch"],
            ms(row["elected_at"]),
            row["controller"],
            row["previous"],
            row["takeover_ms"],
        )
        for row in document["elections"]
    ] == [(1, 0, 1, None, 12), (2, 5000, 3, 1, 25), (3, 7100, 2, 3, 0)]


def test_how_long_nobody_was_in_charge_is_known_after_a_resignation_alone(
    document: Document,
) -> None:
    assert [row["vacant_ms"] for row in document["elections"]] == [None, None, 100]


def test_a_creation_lasts_from_the_wish_until_the_last_partition_has_a_leader(
    document: Document,
) -> None:
    columns = ("requested_at", "assigned_at", "online_at", "ms", "by", "automatic")
    assert rows(document, "creations", "orders", *columns) == [(90, 100, 150, 60, "app", None)]
    assert rows(document, "creations", "clicks", *columns) == [(290, 300, 301, 11, "app", True)]
    assert rows(document, "creations", "doomed", *columns) == [(400, 400, 402, 2, None, None)]
    assert rows(document, "creations", "late", *columns) == [(8000, 8000, None, None, None, None)]


def test_a_partition_is_out_from_when_its_leader_was_missed_until_it_has_one(
    document: Document,
) -> None:
    columns = ("partition", "from", "until", "ms")
    assert rows(document, "outages", "orders", *columns) == [
        (0, 5000, 5010, 10),  # found so by the second controller
        (1, 1000, 1040, 40),
        (1, 5000, 6000, 1000),
    ]
    assert rows(document, "outages", "clicks", *columns) == [(0, 1000, 6000, 5000)]


def test_an_outage_that_the_next_controller_does_not_mention_had_ended(document: Document) -> None:
    columns = ("partition", "from", "until", "ms")
    assert rows(document, "outages", "quiet", *columns) == [(0, 1000, 5000, 4000)]


def test_an_outage_that_lasts_is_counted_until_now(document: Document) -> None:
    columns = ("partition", "from", "until", "ms", "why")
    assert rows(document, "outages", "late", *columns) == [(0, 8001, None, 1999, "nobody is alive")]
    assert topic(document, "late")["offline_now"] == 1
    assert document["summary"]["partitions_offline"] == 1


def test_outages_of_one_cause_are_one_incident(document: Document) -> None:
    assert [
        (
            *(row["epoch"], row["cause"], ms(row["from"]), ms(row["until"])),
            *(row["topics"], row["partitions"], row["longest_ms"], row["offline_now"]),
        )
        for row in document["incidents"]
    ] == [
        (3, "TopicsChanged#5", 8001, None, 1, 1, 1999, 1),  # what lasts stands first
        (2, "ControllerGone#1", 5000, 6000, 1, 2, 1000, 0),
        (1, "BrokersChanged#9", 1000, 6000, 3, 3, 5000, 0),
    ]
    assert document["incidents"][-1]["lost_leaders"] == [2]


def test_to_be_deleted_is_no_outage(document: Document) -> None:
    assert rows(document, "outages", "doomed", "from") == []
    assert rows(document, "outages", "reborn", "from") == []


def test_leaders_move_where_another_one_leads_than_before(document: Document) -> None:
    columns = ("partition", "at", "before", "after")
    assert rows(document, "leader_moves", "orders", *columns) == [
        (0, 5010, 1, 2),
        (1, 1040, 2, 1),
        (1, 6000, 1, 2),
    ]
    assert rows(document, "leader_moves", "clicks", *columns) == []  # away, and back


def test_a_name_that_is_used_again_has_two_lives(document: Document) -> None:
    first, second = topic(document, "reborn", 1), topic(document, "reborn", 2)
    assert (ms(first["requested_at"]), ms(first["deleted_at"])) == (500, 611)
    assert (ms(second["requested_at"]), ms(second["deleted_at"])) == (700, None)
    assert (first["leader_moves"], second["leader_moves"]) == (0, 0)
    assert rows(document, "creations", "reborn", "life", "ms") == [(1, 1), (2, 3)]


def test_a_deletion_lasts_from_the_wish_until_the_last_replica_is_gone(document: Document) -> None:
    columns = ("life", "state", "requested_at", "finished_at", "ms", "by")
    assert rows(document, "deletions", "reborn", *columns) == [(1, "done", 600, 611, 11, "app")]


def test_a_deletion_that_waits_for_a_broker_is_stuck_and_names_it(document: Document) -> None:
    (found,) = [row for row in document["deletions"] if row["topic"] == "doomed"]
    assert (found["state"], ms(found["requested_at"]), found["ms"]) == ("stuck", 1500, 8500)
    assert (found["waits_for"], found["waited_for"]) == ([2], [2])
    assert document["summary"]["stuck_deletions"] == 1
    assert document["deletions"][0] is found


def test_what_was_waited_for_is_told_step_by_step(document: Document) -> None:
    columns = ("began_at", "step", "broker", "ms")
    assert rows(document, "slowest_steps", "orders", *columns) == [
        (90, "the controller", None, 10),
        (100, "an election", None, 50),
        (151, "LeaderAndIsr", 1, 9),
        (151, "LeaderAndIsr", 2, 49),
        (5011, "LeaderAndIsr", 2, 14),
        (8002, "UpdateMetadata", 2, 70),
    ]
    assert rows(document, "slowest_steps", "doomed", *columns) == [
        (400, "an election", None, 2),
        (400, "the controller", None, 0),
        (1500, "the controller", None, 10),
        (1510, "the return of a broker", 2, 8490),
        (1512, "StopReplica", 1, 17),
    ]
    slowest = topic(document, "orders")
    assert (slowest["slowest_step"], slowest["slowest_broker"], slowest["slowest_ms"]) == (
        "UpdateMetadata",
        2,
        70,
    )


def test_a_request_without_an_answer_is_waited_for_until_now(document: Document) -> None:
    columns = ("step", "broker", "ended_at", "ms")
    assert ("LeaderAndIsr", 9, None, 1900) in rows(document, "slowest_steps", "late", *columns)
    assert ("UpdateMetadata", 2, 8072, 70) in rows(document, "slowest_steps", "late", *columns)


def test_a_topic_is_summed_up_in_one_row(document: Document) -> None:
    orders = topic(document, "orders")
    assert (orders["partitions"], orders["replication_factor"]) == (2, 2)
    assert (orders["online_after_ms"], orders["leader_moves"]) == (60, 3)
    assert (orders["unavailable_ms"], orders["longest_outage_ms"]) == (1050, 1000)
    assert (orders["partitions_affected"], orders["offline_now"]) == (2, 0)
    assert "__state_changes" not in {row["topic"] for row in document["topics"]}


def test_the_worst_stands_first(document: Document) -> None:
    assert [row["topic"] for row in document["topics"]][:4] == ["doomed", "late", "clicks", "quiet"]


def test_the_whole_is_summed_up_in_one_place(document: Document) -> None:
    assert document["summary"] == {
        "topics": 6,
        "created": 7,
        "deleted": 1,
        "elections": 3,
        "failovers": 2,
        "longest_takeover_ms": 25,
        "partitions_offline": 1,
        "incidents": 3,
        "outages": 6,
        "unavailable_ms": 10 + 40 + 1000 + 5000 + 4000 + 1999,
        "longest_outage_ms": 5000,
        "leader_moves": 3,
        "stuck_deletions": 1,
        "median_creation_ms": 2,  # of 1, 2, 2, 3, 11 and 60, rounded
        "slowest_creation_ms": 60,
    }
