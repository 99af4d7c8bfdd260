"""Formatting for the report: times, durations, topics, steps and causes as text, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
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
    return int(at.timestamp() * 1000)


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


def describe_cause(cause: str | None, lost_leaders: Iterable[int | None] = ()) -> str:
    """Return the cause of outages as text: for BrokersChanged, the failed brokers if the lost leaders are known.

    >>> describe_cause("BrokersChanged#17", [3]), describe_cause("BrokersChanged#17", [2, 3])
    ('broker 3 failed', 'brokers 2, 3 failed')
    >>> describe_cause("BrokersChanged#17"), describe_cause("TopicsChanged#5", [3])
    ('brokers changed', 'TopicsChanged')
    """
    name = cause_name(cause)
    if name != "BrokersChanged":
        return name
    failed = [broker for broker in lost_leaders if broker is not None]
    if not failed:
        return "brokers changed"
    return f"broker{'s' if len(failed) > 1 else ''} {join_numbers(failed)} failed"


def cause_name(cause: str | None) -> str:
    """Return the name of the event that the controller handled, without its number in the queue.

    >>> cause_name("BrokersChanged#17")
    'BrokersChanged'
    """
    return (cause or "").partition("#")[0]
