"""The report for a hand-made history: all expected values were worked out on paper from tests/lifecycle_history.py."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from barnabas.history.analysis import analyse
from barnabas.history.report import Document, document_of
from barnabas.history.words import Row
from tests.lifecycle_history import NOW, START, read_all, sample_history


@pytest.fixture(scope="module")
def document() -> Document:
    tables = analyse(read_all(sample_history().lines()), NOW, session_timeout_ms=6000)
    return document_of(tables, servers="here:9092", now=NOW)


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


def test_duplicate_and_malformed_records_are_ignored(document: Document) -> None:
    assert document["history"]["events"] == len(sample_history().events)
    assert (ms(document["history"]["from"]), ms(document["history"]["until"])) == (0, 8100)


def test_elections_list_predecessor_and_takeover_time(
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


def test_vacancy_is_known_only_after_resignation(
    document: Document,
) -> None:
    assert [row["vacant_ms"] for row in document["elections"]] == [None, None, 100]


def test_creation_lasts_from_request_to_last_leader(
    document: Document,
) -> None:
    columns = ("requested_at", "assigned_at", "online_at", "ms", "by", "automatic")
    assert rows(document, "creations", "orders", *columns) == [(90, 100, 150, 60, "app", None)]
    assert rows(document, "creations", "clicks", *columns) == [(290, 300, 301, 11, "app", True)]
    assert rows(document, "creations", "doomed", *columns) == [(400, 400, 402, 2, None, None)]
    assert rows(document, "creations", "late", *columns) == [(8000, 8000, None, None, None, None)]


def test_outage_lasts_from_lost_leader_to_new_leader(
    document: Document,
) -> None:
    columns = ("partition", "from", "until", "ms")
    assert rows(document, "outages", "orders", *columns) == [
        (0, 5000, 5010, 10),  # found offline by the second controller
        (1, 1000, 1040, 40),
        (1, 5000, 6000, 1000),
    ]
    assert rows(document, "outages", "clicks", *columns) == [(0, 1000, 6000, 5000)]


def test_outage_unknown_to_next_controller_has_ended(document: Document) -> None:
    columns = ("partition", "from", "until", "ms")
    assert rows(document, "outages", "quiet", *columns) == [(0, 1000, 5000, 4000)]


def test_ongoing_outage_is_counted_until_now(document: Document) -> None:
    columns = ("partition", "from", "until", "ms", "why")
    assert rows(document, "outages", "late", *columns) == [(0, 8001, None, 1999, "nobody is alive")]
    assert topic(document, "late")["offline_now"] == 1
    assert document["summary"]["partitions_offline"] == 1


def test_outages_with_same_cause_form_one_incident(document: Document) -> None:
    assert [
        (
            *(row["epoch"], row["cause"], ms(row["from"]), ms(row["until"])),
            *(row["topics"], row["partitions"], row["longest_ms"], row["offline_now"]),
        )
        for row in document["incidents"]
    ] == [
        (3, "TopicsChanged#5", 8001, None, 1, 1, 1999, 1),  # ongoing incidents come first
        (2, "ControllerGone#1", 5000, 6000, 1, 2, 1000, 0),
        (1, "BrokersChanged#9", 1000, 6000, 3, 3, 5000, 0),
    ]
    assert document["incidents"][-1]["lost_leaders"] == [2]


def test_pending_deletion_is_not_outage(document: Document) -> None:
    assert rows(document, "outages", "doomed", "from") == []
    assert rows(document, "outages", "reborn", "from") == []


def test_leader_moves_list_changed_leaders(document: Document) -> None:
    columns = ("partition", "at", "before", "after")
    assert rows(document, "leader_moves", "orders", *columns) == [
        (0, 5010, 1, 2),
        (1, 1040, 2, 1),
        (1, 6000, 1, 2),
    ]
    assert rows(document, "leader_moves", "clicks", *columns) == []  # the leader left and returned


def test_recreated_topic_has_separate_rows(document: Document) -> None:
    first, second = topic(document, "reborn", 1), topic(document, "reborn", 2)
    assert (ms(first["requested_at"]), ms(first["deleted_at"])) == (500, 611)
    assert (ms(second["requested_at"]), ms(second["deleted_at"])) == (700, None)
    assert (first["leader_moves"], second["leader_moves"]) == (0, 0)
    assert rows(document, "creations", "reborn", "life", "ms") == [(1, 1), (2, 3)]


def test_deletion_lasts_from_request_to_last_replica(document: Document) -> None:
    columns = ("life", "state", "requested_at", "finished_at", "ms", "by")
    assert rows(document, "deletions", "reborn", *columns) == [(1, "done", 600, 611, 11, "app")]


def test_deletion_waiting_for_broker_is_stuck(document: Document) -> None:
    (found,) = [row for row in document["deletions"] if row["topic"] == "doomed"]
    assert (found["state"], ms(found["requested_at"]), found["ms"]) == ("stuck", 1500, 8500)
    assert (found["waits_for"], found["waited_for"]) == ([2], [2])
    assert document["summary"]["stuck_deletions"] == 1
    assert document["deletions"][0] is found


def test_slowest_steps_are_listed(document: Document) -> None:
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


def test_unanswered_request_is_counted_until_now(document: Document) -> None:
    columns = ("step", "broker", "ended_at", "ms")
    assert ("LeaderAndIsr", 9, None, 1900) in rows(document, "slowest_steps", "late", *columns)
    assert ("UpdateMetadata", 2, 8072, 70) in rows(document, "slowest_steps", "late", *columns)


def test_topic_row_summarizes_topic(document: Document) -> None:
    orders = topic(document, "orders")
    assert (orders["partitions"], orders["replication_factor"]) == (2, 2)
    assert (orders["online_after_ms"], orders["leader_moves"]) == (60, 3)
    assert (orders["unavailable_ms"], orders["longest_outage_ms"]) == (1050, 1000)
    assert (orders["partitions_affected"], orders["offline_now"]) == (2, 0)
    assert "__state_changes" not in {row["topic"] for row in document["topics"]}


def test_worst_topics_come_first(document: Document) -> None:
    assert [row["topic"] for row in document["topics"]][:4] == ["doomed", "late", "clicks", "quiet"]


def test_summary_covers_whole_history(document: Document) -> None:
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
