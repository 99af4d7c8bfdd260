"""Incidents: outages and leader moves with their reasons in words, and the outages of one failure as one row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from barnabas.history.brokers import FAILED, SHUT_DOWN, UP, find_downtime
from barnabas.history.words import LOSSES, SHUTDOWN, Row, describe_cause, join_numbers

BrokerTimes = defaultdict[int, list[Row]]
"""The rows of each broker in the table `brokers`, in order."""
CREATIONS = ("TopicsChanged", "PartitionsModified")


def add_incidents(
    tables: Mapping[str, Sequence[Row]], brokers: Sequence[Row], session_timeout_ms: int | None
) -> list[Row]:
    """Add the columns `reason`, `unnoticed_ms` and `incident` to outages, `reason` to leader moves, and return the
    incidents.

    `unnoticed_ms` is how much longer the outage may have lasted: the controller notices a failed broker when its
    session ends. It is None for an outage without a failure, or if the session timeout is unknown.
    """
    times: BrokerTimes = defaultdict(list)
    for row in brokers:
        times[row["broker"]].append(row)
    outages = sorted(tables["outages"], key=lambda row: (row["from"], row["epoch"], row["cause"]))
    for row in outages:
        down = outage_downtime(row, times)
        row["reason"] = outage_reason(row, down)
        row["unnoticed_ms"] = session_timeout_ms if down == FAILED else None
    for row in tables["leader_moves"]:
        row["reason"] = move_reason(row, times)
    groups = group_outages(outages)
    for number, group in enumerate(groups, 1):
        for row in group:
            row["incident"] = number
    return [build_incident(group, times) for group in groups]


def outage_downtime(row: Row, times: BrokerTimes) -> str | None:
    """Return how the broker of the lost leader went down: FAILED, SHUT_DOWN, or None if there was another cause."""
    if row["lost_leader"] is None or not row["cause"].startswith(LOSSES):
        return None
    found = find_downtime(times[row["lost_leader"]], row, row["from"])
    if found is None:
        return SHUT_DOWN if row["cause"].startswith(SHUTDOWN) else FAILED
    state: str = found["state"]
    return state


def outage_reason(row: Row, down: str | None) -> str:
    if down is not None:
        return loss_text(down, [row["lost_leader"]])
    if row["lost_leader"] is None and row["cause"].startswith(CREATIONS):
        return "created while no replica was online"
    return describe_cause(row["cause"], row["lost_leader"])


def loss_text(state: str, brokers: Sequence[int]) -> str:
    """
    >>> loss_text("failed", [2, 3]), loss_text("shut down", [2])
    ('brokers 2, 3 failed', 'controlled shutdown of broker 2')
    """
    noun = f"broker{'s' if len(brokers) > 1 else ''} {join_numbers(brokers)}"
    return f"{noun} failed" if state == FAILED else f"controlled shutdown of {noun}"


def move_reason(row: Row, times: BrokerTimes) -> str:
    """Return why a leader moved: its broker went down, the broker of the new leader returned, or the cause in words."""
    if not row["cause"].startswith(LOSSES):
        return describe_cause(row["cause"], row["before"])
    if row["cause"].startswith(SHUTDOWN):
        return loss_text(SHUT_DOWN, [row["before"]])
    found = find_downtime(times[row["before"]], row, row["at"])
    is_new = found is not None and (found["epoch"], found["cause"]) == (row["epoch"], row["cause"])
    if not is_new and has_returned(times[row["after"]], row):
        return f"broker {row['after']} returned"
    return loss_text(FAILED if found is None else found["state"], [row["before"]])


def has_returned(times: Sequence[Row], row: Row) -> bool:
    """Return whether the new leader was down until the event of the controller that moved the leadership to it."""
    return any(
        (after["state"], after["epoch"], after["cause"]) == (UP, row["epoch"], row["cause"])
        for after in times[1:]
    )


def group_outages(outages: Sequence[Row]) -> list[list[Row]]:
    """Group outages, sorted by their start, that have the same cause, or the same reason while the group is ongoing."""
    groups: list[list[Row]] = []
    by_cause: dict[tuple[int, str], list[Row]] = {}
    by_reason: dict[str, list[Row]] = {}
    ends: dict[int, datetime | None] = {}
    for row in outages:
        cause, reason = (row["epoch"], row["cause"]), row["reason"]
        group = by_cause.get(cause)
        if group is None and reason in by_reason:
            end = ends[id(by_reason[reason])]
            if end is None or row["from"] <= end:
                group = by_reason[reason]
        if group is None:
            group = []
            groups.append(group)
        group.append(row)
        by_cause[cause] = by_reason[reason] = group
        until, end = row["until"], ends.get(id(group), row["until"])
        ends[id(group)] = None if until is None or end is None else max(until, end)
    return groups


def build_incident(outages: Sequence[Row], times: BrokerTimes) -> Row:
    """Return the row of an incident. `until` is None if one of its outages is ongoing."""
    first = outages[0]
    ends = [row["until"] for row in outages]
    notices = [row["unnoticed_ms"] for row in outages if row["unnoticed_ms"] is not None]
    return {
        "incident": first["incident"],
        "epoch": first["epoch"],
        "cause": first["cause"],
        "reason": incident_reason(outages, times),
        "from": first["from"],
        "until": None if None in ends else max(ends),
        "longest_ms": max(row["ms"] for row in outages),
        "unnoticed_ms": max(notices, default=None),
        "topics": len({(row["topic"], row["life"]) for row in outages}),
        "partitions": len({(row["topic"], row["life"], row["partition"]) for row in outages}),
        "offline_now": sum(end is None for end in ends),
        "why": max((row["why"] for row in outages if row["why"]), default=None),
        "lost_leaders": sorted({row["lost_leader"] for row in outages} - {None}),
    }


def incident_reason(outages: Sequence[Row], times: BrokerTimes) -> str:
    """Return the reasons of all outages, with the brokers that went down in the same way together."""
    lost: dict[str, set[int]] = defaultdict(set)
    others: list[str] = []
    for row in outages:
        down = outage_downtime(row, times)
        if down is None:
            others.append(row["reason"])
        else:
            lost[down].add(row["lost_leader"])
    losses = [loss_text(state, sorted(found)) for state, found in sorted(lost.items())]
    return "; ".join(dict.fromkeys([*losses, *others]))
