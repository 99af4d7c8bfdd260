"""Brokers: times in which each one was up or down, as far as the history shows it.

The history has no events about brokers. The controller sends requests to brokers that are up. It takes the replicas of
a broker offline when the broker fails, or asks for a controlled shutdown, and online again when it returns. A broker
without replicas that fails therefore stays `up` here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from operator import attrgetter

from barnabas.history.reader import BrokerSighting
from barnabas.history.words import Row, millis_of

UP, FAILED, SHUT_DOWN = "up", "failed", "shut down"


def build_brokers(sightings: Iterable[BrokerSighting], now: datetime) -> list[Row]:
    """Return one row per broker and time in which it was up, failed or shut down. The last one has no end."""
    by_broker: dict[int, list[BrokerSighting]] = defaultdict(list)
    for each in sightings:
        by_broker[each.broker].append(each)
    return [row for broker in sorted(by_broker) for row in broker_times(by_broker[broker], now)]


def broker_times(sightings: list[BrokerSighting], now: datetime) -> list[Row]:
    rows: list[Row] = []
    is_gone = False
    """Whether the session of the broker has ended. A broker that shuts down still gets requests before that."""
    for each in sorted(sightings, key=attrgetter("epoch", "sequence")):
        state = rows[-1]["state"] if rows else None
        following = state_after_sign(state, each.sign, is_gone)
        is_gone = each.sign == "offline" or (is_gone and following != UP)
        if following == state:
            continue
        if rows:
            rows[-1]["until"] = each.at
        rows.append(
            {
                "broker": each.broker,
                "state": following,
                "from": each.at,
                "until": None,
                "epoch": each.epoch,
                "cause": each.cause,
            }
        )
    for row in rows:
        row["ms"] = millis_of(row["until"] or now) - millis_of(row["from"])
    return rows


def state_after_sign(state: str | None, sign: str, is_gone: bool) -> str:
    """
    >>> state_after_sign("up", "offline", False), state_after_sign("shut down", "offline", False)
    ('failed', 'shut down')
    >>> state_after_sign("shut down", "request", False), state_after_sign("shut down", "request", True)
    ('shut down', 'up')
    """
    if sign == "online" or (state is None and sign == "request"):
        return UP
    if sign == "request":
        return SHUT_DOWN if state == SHUT_DOWN and not is_gone else UP
    if state in (FAILED, SHUT_DOWN):
        return state
    return SHUT_DOWN if sign == "shutdown" else FAILED


def find_downtime(times: Iterable[Row], row: Row, at: datetime) -> Row | None:
    """Return the downtime of a broker that a row of another table belongs to: at that time, or with the same cause.

    `times` are the rows of the broker.
    """
    for each in times:
        if each["state"] == UP:
            continue
        is_same_cause = (each["epoch"], each["cause"]) == (row["epoch"], row["cause"])
        if is_same_cause or each["from"] <= at <= (each["until"] or at):
            return each
    return None
