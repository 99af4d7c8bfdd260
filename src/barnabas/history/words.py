"""Formatting for the report: times, durations, topics, steps and causes as text, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

Row = dict[str, Any]
"""A row of a table of the report."""

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
PARTITIONS_NAMED = 8
UNIX_EPOCH, MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
UNITS = ((DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "min"), (MINUTE, "min", SECOND, "s"))


def format_duration(ms: int | None) -> str:
    """
    >>> [format_duration(ms) for ms in (7, 1_240, 75_000, 7_500_000, 200_000_000)]
    ['7 ms', '1.2 s', '1 min 15 s', '2 h 5 min', '2 d 7 h']
    """
    if ms is None:
        return ""
    for unit, name, smaller, smaller_name in UNITS:
        if ms >= unit:
            rest = ms % unit // smaller
            return f"{ms // unit} {name}" + (f" {rest} {smaller_name}" if rest else "")
    return f"{ms / SECOND:.1f} s" if ms >= SECOND else f"{ms} ms"


def format_time(at: datetime | None) -> str:
    """
    >>> format_time(datetime(2026, 5, 1, 8, 0, 0, 123000, UTC))
    '2026-05-01 08:00:00.123'
    """
    return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def millis_of(at: datetime) -> int:
    return (at - UNIX_EPOCH) // MILLISECOND


def join_numbers(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def topic_label(row: Mapping[str, Any]) -> str:
    """
    >>> topic_label({"topic": "orders", "life": 1}), topic_label({"topic": "orders", "life": 2})
    ('orders', 'orders (2nd)')
    """
    life = row["life"]
    if life == 1:
        return str(row["topic"])
    ending = {1: "st", 2: "nd", 3: "rd"}.get(life % 10 if life // 10 % 10 != 1 else 0, "th")
    return f"{row['topic']} ({life}{ending})"


def step_name(step: str, broker: int | None) -> str:
    """
    >>> step_name("LeaderAndIsr", 2), step_name("the return of a broker", 3), step_name("an election", None)
    ('broker 2: LeaderAndIsr', 'the return of broker 3', 'an election')
    """
    if broker is None:
        return step
    if step.endswith(" a broker"):
        return step.removesuffix("a broker") + f"broker {broker}"
    return f"broker {broker}: {step}"


SHUTDOWN = "ControlledShutdown"
TAKEOVERS = ("Startup", "ControllerGone", "ControllerChanged", "SessionOpened")
LOSSES = (SHUTDOWN, "BrokersChanged", *TAKEOVERS)
"""Starts of the causes of OfflineReplica that mean a lost broker. Deletions and failed directories are others."""
CAUSES = {
    "Startup": "broker started",
    "ControllerGone": "controller gone",
    "ControllerChanged": "controller changed",
    "SessionOpened": "new session",
    "SessionExpired": "expired session of the controller",
    "BrokersChanged": "brokers changed",
    "BrokerModified": "broker changed its registration",
    "TopicsChanged": "topic created",
    "PartitionsModified": "partitions added",
    "TopicsMarked": "topic deleted",
    "LogDirFailed": "failed log directory",
    "IsrsChanged": "ISR changed",
    "AlterPartitionReceived": "ISR changed",
    "PreferredElectionRequested": "preferred election",
    "LeadersUnbalanced": "automatic preferred election",
    "ElectLeadersReceived": "election requested by a client",
    "ReassignmentRequested": "reassignment",
    "ReassignmentsReceived": "reassignment",
    "ReassignmentsProgressed": "reassignment",
    "RequestAnswered": "response of a broker",
    "ControlledShutdownReceived": "controlled shutdown",
    "UncleanLeaderElectionEnable": "unclean elections enabled",
    "TopicUncleanLeaderElectionEnable": "unclean elections enabled",
    "CreateTopics": "CreateTopics request",
    "DeleteTopics": "DeleteTopics request",
}
"""Events that controllers handle (controller/events.py), in words."""


def describe_cause(cause: str | None, broker: int | None = None) -> str:
    """Return the cause in words. An unknown cause is returned without its number. `broker` is the one that was lost.

    >>> describe_cause("LogDirFailed#17", 3), describe_cause("LeadersUnbalanced#4"), describe_cause("Other#5")
    ('failed log directory of broker 3', 'automatic preferred election', 'Other')
    """
    name = cause_name(cause)
    text = CAUSES.get(name, name)
    return f"{text} of broker {broker}" if name == "LogDirFailed" and broker is not None else text


def cause_name(cause: str | None) -> str:
    """Return the name of the event that the controller handled, without its number in the queue.

    >>> cause_name("BrokersChanged#17")
    'BrokersChanged'
    """
    return (cause or "").partition("#")[0]


def format_outage(ms: int, unnoticed_ms: int | None, is_ongoing: bool) -> str:
    """Return the duration of an outage, and how much longer it may have been before the failure was noticed.

    >>> format_outage(2_300, 6_000, False), format_outage(75_000, None, True)
    ('2.3 s, up to +6 s until noticed', '1 min 15 s so far, ongoing')
    """
    text = format_duration(ms) + (" so far, ongoing" if is_ongoing else "")
    return f"{text}, {format_unnoticed(unnoticed_ms)} until noticed" if unnoticed_ms else text


def format_unnoticed(ms: int | None) -> str:
    return "" if ms is None else f"up to +{ms / SECOND:g} s"


def partition_list(numbers: Iterable[int]) -> str:
    """Return the numbers of partitions, at most eight of them.

    >>> partition_list([3]), partition_list(range(10))
    ('partition 3', 'partitions 0, 1, 2, 3, 4, 5, 6, 7, …')
    """
    ordered = sorted(numbers)
    more = ", …" if len(ordered) > PARTITIONS_NAMED else ""
    noun = "partition" if len(ordered) == 1 else "partitions"
    return f"{noun} {join_numbers(ordered[:PARTITIONS_NAMED])}{more}"
