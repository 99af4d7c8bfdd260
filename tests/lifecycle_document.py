"""A sample lifecycle report with every kind of content, for tests of the page and the terminal output."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from barnabas.explain.finding import Cause, Finding, Severity
from barnabas.explain.text import finding_document
from barnabas.history.report import Document, document_of
from barnabas.history.words import Row
from barnabas.model import TopicPartition

START = datetime(2026, 5, 1, 8, tzinfo=UTC)
HOSTILE = '<script>alert("x")</script>&amp;'
"""Not a valid topic name, but any client may write to the history topic."""


def at(ms: int) -> datetime:
    return START + timedelta(milliseconds=ms)


def topic(name: str, life: int = 1, **more: object) -> Row:
    return {
        "topic": name,
        "life": life,
        "partitions": 3,
        "replication_factor": 2,
        "first_at": at(100),
        "last_at": at(900),
        "requested_at": at(90),
        "online_at": at(150),
        "online_after_ms": 60,
        "deletion": None,
        "deleted_at": None,
        "unavailable_ms": 0,
        "longest_outage_ms": 0,
        "partitions_affected": 0,
        "offline_now": 0,
        "leader_moves": 0,
        "slowest_ms": 50,
        "slowest_step": "an election",
        "slowest_broker": None,
        **more,
    }


def creation(name: str, ms: int | None, life: int = 1) -> Row:
    return {
        "topic": name,
        "life": life,
        "requested_at": at(90),
        "assigned_at": at(100),
        "online_at": None if ms is None else at(90 + ms),
        "ms": ms,
        "partitions": 3,
        "replication_factor": 2,
        "by": HOSTILE,
        "host": "::1",
        "automatic": True,
        "cause": "TopicsChanged#2",
    }


def outage(
    name: str, partition: int, start: int, until: int | None, life: int = 1, incident: int = 1
) -> Row:
    return {
        "topic": name,
        "life": life,
        "partition": partition,
        "from": at(start),
        "epoch": 1,
        "until": None if until is None else at(until),
        "ms": (until or 10_000) - start,
        "cause": "BrokersChanged#9",
        "ended_by": "BrokersChanged#9",
        "why": "nobody is alive",
        "lost_leader": 2,
        "reason": "broker 2 failed",
        "unnoticed_ms": 6000,
        "incident": incident,
    }


def incident(
    number: int, start: int, until: int | None, cause: str, reason: str, lost_leaders: list[int]
) -> Row:
    return {
        "incident": number,
        "reason": reason,
        "unnoticed_ms": 6000 if lost_leaders else None,
        "epoch": 1,
        "cause": cause,
        "from": at(start),
        "until": None if until is None else at(until),
        "longest_ms": (until or 10_000) - start,
        "topics": 2,
        "partitions": 3,
        "offline_now": 0,
        "why": None,
        "lost_leaders": lost_leaders,
    }


def broker(number: int, state: str, start: int, until: int | None) -> Row:
    return {
        "broker": number,
        "state": state,
        "from": at(start),
        "until": None if until is None else at(until),
        "ms": (until or 10_000) - start,
        "epoch": 1,
        "cause": "BrokersChanged#9",
    }


def deletion(name: str, state: str, ms: int, waits_for: list[int]) -> Row:
    done = state == "done"
    return {
        "topic": name,
        "life": 1,
        "state": state,
        "requested_at": at(1500),
        "started_at": at(1510),
        "finished_at": at(1500 + ms) if done else None,
        "ms": ms,
        "waits_for": waits_for,
        "waited_for": waits_for,
        "by": "app",
        "host": "::1",
    }


def election(epoch: int, start: int, controller: int, previous: int | None, **more: object) -> Row:
    return {
        "epoch": epoch,
        "elected_at": at(start),
        "controller": controller,
        "previous": previous,
        "cause": "ControllerGone#1",
        "vacant_ms": None,
        "takeover_ms": 25,
        "resigned_at": None,
        "first_at": at(start),
        "last_at": at(start + 900),
        "events": 30,
        **more,
    }


def problem(topic: str) -> Row:
    partition = TopicPartition(topic, 0)
    found = Finding(
        cause=Cause.ALL_REPLICAS_DOWN,
        severity=Severity.ERROR,
        topic=topic,
        partitions=(partition,),
        brokers=(2,),
        since_ms=int(at(8001).timestamp() * 1000),
        values={"replicas": 1},
    )
    return finding_document(found, int(at(10_000).timestamp() * 1000))


def sample() -> Document:
    move = {"life": 1, "partition": 1, "at": at(1040), "before": 2, "after": 1, "leader_epoch": 1}
    step = {
        "life": 1,
        "began_at": at(1510),
        "ended_at": None,
        "cause": "TopicsMarked#3",
        "ms": 8490,
    }
    tables: dict[str, list[Row]] = {
        "elections": [
            election(1, 0, 1, None),
            election(2, 5000, 3, 1),
            election(3, 7100, 2, 3, vacant_ms=100),
        ],
        "topics": [
            topic("orders", unavailable_ms=1050, longest_outage_ms=1000, leader_moves=3),
            topic(
                "late",
                requested_at=at(8000),
                offline_now=1,
                unavailable_ms=1999,
                longest_outage_ms=1999,
            ),
            topic("doomed", deletion="stuck"),
            topic("reborn", deletion="done", deleted_at=at(1700)),
            topic("reborn", life=2, requested_at=at(2000), online_after_ms=3),
            topic(HOSTILE),
            *(topic(f"quiet-{number:02d}", online_after_ms=number) for number in range(60)),
        ],
        "creations": [creation("orders", 60), creation("late", None), creation(HOSTILE, 30)],
        "deletions": [deletion("reborn", "done", 200, []), deletion("doomed", "stuck", 8500, [2])],
        "outages": [
            outage("orders", 1, 1000, 1040),
            outage("orders", 0, 5000, 6000),
            outage("late", 0, 8001, None, incident=2),
        ],
        "incidents": [
            incident(1, 1000, 6000, "BrokersChanged#9", "broker 2 failed", [2]),
            incident(2, 8001, None, "TopicsChanged#5", "created while no replica was online", []),
        ],
        "leader_moves": [
            {"topic": "orders", "cause": "BrokersChanged#9", "reason": "broker 2 failed", **move}
        ],
        "brokers": [
            broker(1, "up", 0, 5000),
            broker(1, "failed", 5000, None),
            broker(2, "up", 50, 1000),
            broker(2, "failed", 1000, 6000),
            broker(2, "up", 6000, None),
            broker(3, "up", 50, 7000),
            broker(3, "shut down", 7000, 7050),
            broker(3, "up", 7050, None),
        ],
        "steps": [{"topic": "doomed", "step": "the return of a broker", "broker": 2, **step}],
    }
    return document_of(
        tables,
        servers="localhost:9092",
        now=at(10_000),
        problems=[problem("late"), problem(HOSTILE)],
    )
