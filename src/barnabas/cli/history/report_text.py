"""The lifecycle report as tables for the terminal."""

from __future__ import annotations

from typing import Any

from barnabas.cli.explain.output import finding_lines
from barnabas.cli.terminal.output import format_table, plural
from barnabas.history.brokers import UP
from barnabas.history.page import topic_state
from barnabas.history.report import Document, is_failover
from barnabas.history.words import (
    Row,
    describe_cause,
    format_duration,
    format_time,
    format_unnoticed,
    join_numbers,
    step_name,
    topic_label,
)

ROWS_MAX = 20
REPORT_WIDTH = 100
"""Columns of its tables, also in a pipe: a report is read, not processed."""
"""Maximum rows per table."""


def report_text(document: Document) -> str:
    parts = [
        summary_text(document),
        problems_text(document["problems"]),
        elections_text(document["elections"]),
        brokers_text(document["brokers"]),
        incidents_text(document["incidents"]),
        deletions_text(document["deletions"]),
        topics_text(document["topics"]),
        steps_text(document["slowest_steps"]),
    ]
    return "\n\n".join(part for part in parts if part)


def summary_text(document: Document) -> str:
    history, summary = document["history"], document["summary"]
    lines = [
        f"{plural(history['events'], 'event')} from {format_time(history['from'])} "
        f"to {format_time(history['until'])} UTC",
        f"{plural(summary['topics'], 'topic')}; {summary['created']:,} created, {summary['deleted']:,} deleted",
    ]
    if summary["median_creation_ms"] is not None:
        slowest = format_duration(summary["slowest_creation_ms"])
        lines.append(
            f"online after {format_duration(summary['median_creation_ms'])} (median), {slowest} (slowest)"
        )
    outages = plural(summary["outages"], "partition outage")
    if summary["outages"]:
        outages += f", the longest {format_duration(summary['longest_outage_ms'])}"
    lines.append(f"{outages}; {plural(summary['leader_moves'], 'leader move')}")
    if summary["partitions_offline"]:
        lines.append(f"{plural(summary['partitions_offline'], 'partition')} OFFLINE now")
    if summary["stuck_deletions"]:
        lines.append(f"{plural(summary['stuck_deletions'], 'deletion')} STUCK")
    return "\n".join(lines)


def problems_text(problems: list[Row]) -> str:
    if not problems:
        return ""
    lines = [line for problem in problems[:ROWS_MAX] for line in finding_lines(problem)]
    return "\n".join(["needs attention", *lines])


def elections_text(elections: list[Row]) -> str:
    heads = [
        "epoch",
        "elected (UTC)",
        "controller",
        "after",
        "without controller",
        "takeover",
        "cause",
    ]
    rows = [
        [
            row["epoch"],
            format_time(row["elected_at"]) or "before the history",
            row["controller"],
            "" if row["previous"] is None else row["previous"],
            format_duration(row["vacant_ms"]) or ("unknown" if is_failover(row) else ""),
            format_duration(row["takeover_ms"]),
            describe_cause(row["cause"]),
        ]
        for row in elections[-ROWS_MAX:]
    ]
    return titled_table("controllers", heads, rows, len(elections), "last")


def brokers_text(brokers: list[Row]) -> str:
    downtimes = [row for row in brokers if row["state"] != UP]
    if not downtimes:
        return ""
    downtimes.sort(key=lambda row: (row["until"] is not None, -row["from"].timestamp()))
    heads = ["broker", "state", "from (UTC)", "for"]
    rows = [
        [row["broker"], row["state"], format_time(row["from"]), duration_text(row, row["ms"])]
        for row in downtimes[:ROWS_MAX]
    ]
    return titled_table("brokers down", heads, rows, len(downtimes), "last")


def incidents_text(incidents: list[Row]) -> str:
    if not incidents:
        return ""
    heads = ["from (UTC)", "cause", "partitions", "topics", "no leader for", "until noticed"]
    rows = [
        [
            format_time(row["from"])[5:19],
            row["reason"],
            row["partitions"],
            row["topics"],
            duration_text(row, row["longest_ms"]),
            format_unnoticed(row["unnoticed_ms"]),
        ]
        for row in incidents[:ROWS_MAX]
    ]
    return titled_table("incidents", heads, rows, len(incidents), "last")


def duration_text(row: Row, ms: int) -> str:
    return format_duration(ms) + ("" if row["until"] is not None else ", ongoing")


def deletions_text(deletions: list[Row]) -> str:
    pending = [row for row in deletions if row["state"] != "done"]
    if not pending:
        return ""
    heads = ["topic", "deletion", "since (UTC)", "for", "waits for broker", "requested by"]
    rows = [
        [
            topic_label(row),
            row["state"],
            format_time(row["requested_at"])[:19],
            format_duration(row["ms"]),
            join_numbers(row["waits_for"] or []),
            row["by"] or "",
        ]
        for row in pending[:ROWS_MAX]
    ]
    return titled_table("pending deletions", heads, rows, len(pending), "first")


def topics_text(topics: list[Row]) -> str:
    heads = [
        "topic",
        "state",
        "partitions",
        "online after",
        "unavailable",
        "longest",
        "leader moves",
    ]
    rows = [
        [
            topic_label(row),
            topic_state(row),
            row["partitions"],
            format_duration(row["online_after_ms"]),
            format_duration(row["unavailable_ms"]) if row["unavailable_ms"] else "",
            format_duration(row["longest_outage_ms"]) if row["longest_outage_ms"] else "",
            row["leader_moves"],
        ]
        for row in topics[:ROWS_MAX]
    ]
    return titled_table("topics", heads, rows, len(topics), "most affected")


def steps_text(steps: list[Row]) -> str:
    heads = ["topic", "waited for", "for", "from (UTC)", "cause"]
    rows = [
        [
            topic_label(row),
            step_name(row["step"], row["broker"]),
            format_duration(row["ms"]) + ("" if row["ended_at"] is not None else ", ongoing"),
            format_time(row["began_at"]),
            describe_cause(row["cause"]),
        ]
        for row in steps[: ROWS_MAX // 2]
    ]
    return titled_table("slowest steps", heads, rows, len(rows), "")


def titled_table(
    title: str, heads: list[str], rows: list[list[Any]], count: int, which: str
) -> str:
    """Return a table under its title. If rows were left out, the title says which of `count` rows are shown."""
    more = f" (the {len(rows)} {which} of {count:,})" if count > len(rows) else ""
    return f"{title}{more}\n{format_table(heads, rows, width=REPORT_WIDTH)}"
