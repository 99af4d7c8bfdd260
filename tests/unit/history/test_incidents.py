"""Brokers that fail, shut down and return, and the outages that follow, from hand-made events of the controller."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.history.analysis import TOPIC_TABLES, analyse
from barnabas.history.columns import COLUMNS, column_types, to_arrow
from barnabas.history.words import Row
from tests.lifecycle_history import NOW, START, HistoryBuilder, read_all, sample_history

SHUTDOWN = "ControlledShutdownReceived#4"


def analysed(history: HistoryBuilder) -> dict[str, list[Row]]:
    return analyse(read_all(history.lines()), NOW, session_timeout_ms=6000)


def ms(value: Any) -> int | None:
    return None if value is None else round((value - START).total_seconds() * 1000)


def states_of(
    tables: dict[str, list[Row]], broker: int
) -> list[tuple[str, int | None, int | None]]:
    return [
        (row["state"], ms(row["from"]), ms(row["until"]))
        for row in tables["brokers"]
        if row["broker"] == broker
    ]


@pytest.fixture
def history() -> HistoryBuilder:
    """Two partitions on brokers 2 and 1, one only on broker 2. Broker 1 is the controller."""
    history = HistoryBuilder()
    history.elected(0, 1, "Startup#1")
    for name, replicas in (("a-0", [2, 1]), ("a-1", [2, 1]), ("solo-0", [2])):
        history.created(100, "TopicsChanged#2", name, replicas)
        history.online(110, "TopicsChanged#2", name, "New", 2)
    history.sent(120, "TopicsChanged#2", "LeaderAndIsr", 2, topics={"a": "0-1", "solo": "0"})
    return history


def lose_broker(history: HistoryBuilder, at: int, cause: str, *names: str) -> None:
    for name in names:
        history.partition(at, cause, name, "Online", "Offline")
        if not name.startswith("solo"):
            history.online(at + 20, cause, name, "Offline", 1)
    for name in ("a-0", "a-1", "solo-0"):
        history.replica(at + 21, cause, name, 2, "OfflineReplica")


def restart_broker(history: HistoryBuilder, at: int, cause: str) -> None:
    history.sent(at, cause, "UpdateMetadata", 2, topics={"a": "0-1"})
    for name in ("a-0", "a-1", "solo-0"):
        history.replica(at + 1, cause, name, 2, "OnlineReplica")
    history.online(at + 2, cause, "solo-0", "Offline", 2)


def test_failure_of_a_broker_is_one_incident(history: HistoryBuilder) -> None:
    lose_broker(history, 1000, "BrokersChanged#5", "a-0", "a-1", "solo-0")
    restart_broker(history, 3000, "BrokersChanged#6")
    tables = analysed(history)
    assert states_of(tables, 2) == [("up", 120, 1021), ("failed", 1021, 3000), ("up", 3000, None)]
    (incident,) = tables["incidents"]
    assert (incident["reason"], incident["partitions"], incident["topics"]) == (
        "broker 2 failed",
        3,
        2,
    )
    assert (ms(incident["from"]), ms(incident["until"])) == (1000, 3002)
    assert incident["unnoticed_ms"] == 6000
    assert {row["reason"] for row in tables["leader_moves"]} == {"broker 2 failed"}


def test_brokers_that_fail_together_are_one_incident(history: HistoryBuilder) -> None:
    history.created(200, "TopicsChanged#3", "b-0", [3])
    history.online(210, "TopicsChanged#3", "b-0", "New", 3)
    lose_broker(history, 1000, "BrokersChanged#5", "solo-0")
    history.partition(1000, "BrokersChanged#5", "b-0", "Online", "Offline")
    history.replica(1021, "BrokersChanged#5", "b-0", 3, "OfflineReplica")
    (incident,) = analysed(history)["incidents"]
    assert (incident["reason"], incident["partitions"]) == ("brokers 2, 3 failed", 2)


def test_controlled_shutdown_is_not_a_failure(history: HistoryBuilder) -> None:
    for name in ("a-0", "a-1"):
        history.online(1000, SHUTDOWN, name, "Online", 1)
    history.sent(1001, SHUTDOWN, "StopReplica", 2, topics={"a": "0-1"})
    lose_broker(history, 1200, "BrokersChanged#5", "solo-0")
    restart_broker(history, 3000, "BrokersChanged#6")
    history.online(4000, "LeadersUnbalanced#7", "a-0", "Online", 2)
    tables = analysed(history)
    assert states_of(tables, 2) == [
        ("up", 120, 1000),
        ("shut down", 1000, 3000),
        ("up", 3000, None),
    ]
    (outage,) = tables["outages"]
    assert outage["reason"] == "controlled shutdown of broker 2"
    assert outage["unnoticed_ms"] is None
    assert [row["reason"] for row in tables["leader_moves"]] == [
        "controlled shutdown of broker 2",
        "automatic preferred election",
        "controlled shutdown of broker 2",
    ]


def test_leader_on_a_returned_broker_has_that_reason(history: HistoryBuilder) -> None:
    lose_broker(history, 1000, "BrokersChanged#5", "solo-0", "a-0")
    history.replica(2000, "BrokersChanged#6", "a-0", 1, "OfflineReplica")
    history.partition(2000, "BrokersChanged#6", "a-0", "Online", "Offline")
    history.sent(3000, "BrokersChanged#7", "UpdateMetadata", 2, topics={"a": "0"})
    history.online(3001, "BrokersChanged#7", "a-0", "Offline", 2)
    tables = analysed(history)
    assert [row["reason"] for row in tables["leader_moves"]] == [
        "broker 2 failed",
        "broker 2 returned",
    ]


def test_ongoing_outage_is_found_again_by_the_next_controller(history: HistoryBuilder) -> None:
    """The second controller finds another partition of the failed broker offline: the incident is the same."""
    lose_broker(history, 1000, "BrokersChanged#5", "solo-0")
    history.elected(5000, 3, "ControllerGone#1")
    history.leaderless(5010, "ControllerGone#1", "solo-0")
    history.leaderless(5010, "ControllerGone#1", "a-0")
    history.replica(5011, "ControllerGone#1", "a-0", 2, "OfflineReplica")
    (incident,) = analysed(history)["incidents"]
    assert (incident["reason"], incident["partitions"]) == ("broker 2 failed", 2)
    assert (ms(incident["from"]), incident["until"], incident["offline_now"]) == (1000, None, 2)
    assert incident["longest_ms"] == 9000


def test_separate_failures_of_a_broker_are_separate_incidents(history: HistoryBuilder) -> None:
    for at, numbers in ((1000, (5, 6)), (4000, (7, 8))):
        lose_broker(history, at, f"BrokersChanged#{numbers[0]}", "solo-0")
        restart_broker(history, at + 1000, f"BrokersChanged#{numbers[1]}")
    tables = analysed(history)
    assert [ms(row["from"]) for row in tables["incidents"]] == [1000, 4000]
    assert [row["incident"] for row in tables["outages"]] == [1, 2]


def test_deletion_of_a_topic_does_not_take_brokers_down(history: HistoryBuilder) -> None:
    cause = "BrokersChanged#5"
    history.marked_for_deletion(1000, cause, "a-0")
    history.replica(1001, cause, "a-0", 2, "OfflineReplica")
    assert states_of(analysed(history), 2) == [("up", 120, None)]


def test_failed_directory_is_no_failed_broker(history: HistoryBuilder) -> None:
    cause = "LogDirFailed#5"
    history.partition(1000, cause, "solo-0", "Online", "Offline")
    history.replica(1001, cause, "solo-0", 2, "OfflineReplica")
    tables = analysed(history)
    assert states_of(tables, 2) == [("up", 120, None)]
    (incident,) = tables["incidents"]
    assert incident["reason"] == "failed log directory of broker 2"
    assert incident["unnoticed_ms"] is None


def test_history_without_creation_or_deletion_is_one_life() -> None:
    history = HistoryBuilder()
    history.sent(10, "Startup#1", "UpdateMetadata", 2, topics={"a": "0"})
    (row,) = analysed(history)["topics"]
    assert (row["topic"], row["life"], row["slowest_broker"]) == ("a", 1, 2)


def test_empty_history_has_empty_tables() -> None:
    tables = analyse({}, NOW)
    assert {*tables} == {*TOPIC_TABLES, "elections", "brokers", "incidents"}
    assert not any(tables.values())


@pytest.mark.parametrize("table", COLUMNS)
def test_parquet_files_have_all_columns(table: str) -> None:
    rows = analysed(sample_history())[table]
    assert rows
    assert all(row.keys() == column_types(table).keys() for row in rows)
    assert to_arrow(table, rows).to_pylist() == [
        {name: row[name] for name in column_types(table)} for row in rows
    ]
    assert to_arrow(table, []).schema == to_arrow(table, rows).schema
