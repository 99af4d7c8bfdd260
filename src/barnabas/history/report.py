"""Report: the tables of the analysis as one document, for JSON, text and the HTML page.

Rows are sorted by severity (elections and leader moves by time). Times are in UTC, durations in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from heapq import nsmallest
from statistics import median
from typing import Any

from barnabas.history.analysis import report_time
from barnabas.history.words import Row

SLOWEST_STEPS = 50

Tables = Mapping[str, list[Row]]
Document = dict[str, Any]


def document_of(
    tables: Tables, *, servers: str, now: datetime, problems: Sequence[Row] = ()
) -> Document:
    """Build the document of `barnabas lifecycle report`. `problems` are the current findings of `cluster explain`.

    It has only the slowest of the steps.
    """
    ordered = {
        name: nsmallest(SLOWEST_STEPS if name == "steps" else len(tables[name]), tables[name], key)
        for name, key in SORT_KEYS.items()
    }
    epochs = ordered["elections"]
    return {
        "bootstrap_servers": servers,
        "made_at": report_time(now, epochs),
        "history": {
            "from": min((row["first_at"] for row in epochs), default=None),
            "until": max((row["last_at"] for row in epochs), default=None),
            "events": sum(row["events"] for row in epochs),
        },
        "summary": summarize(ordered),
        "problems": list(problems),
        **{"slowest_steps" if name == "steps" else name: rows for name, rows in ordered.items()},
    }


def summarize(tables: Tables) -> Row:
    elections = tables["elections"]
    topics, outages = tables["topics"], tables["outages"]
    waits = [row["ms"] for row in tables["creations"] if row["ms"] is not None]
    return {
        "topics": sum(row["deleted_at"] is None for row in topics),
        "created": len(tables["creations"]),
        "deleted": sum(row["state"] == "done" for row in tables["deletions"]),
        "elections": sum(row["elected_at"] is not None for row in elections),
        "failovers": sum(is_failover(row) for row in elections),
        "longest_takeover_ms": longest(row["takeover_ms"] for row in elections if is_failover(row)),
        "partitions_offline": sum(row["offline_now"] for row in topics),
        "incidents": len(tables["incidents"]),
        "outages": len(outages),
        "unavailable_ms": sum(row["ms"] for row in outages),
        "longest_outage_ms": longest(row["ms"] for row in outages),
        "leader_moves": len(tables["leader_moves"]),
        "stuck_deletions": sum(row["state"] == "stuck" for row in tables["deletions"]),
        "median_creation_ms": round(median(waits)) if waits else None,
        "slowest_creation_ms": longest(waits),
    }


def is_failover(election: Row) -> bool:
    """Return whether the controller took over from another one. False if that is unknown, as for the first election."""
    is_known = election["previous"] is not None and election["elected_at"] is not None
    return is_known and election["previous"] != election["controller"]


def longest(durations: Any) -> int | None:
    return max((ms for ms in durations if ms is not None), default=None)


def topic_order(row: Row) -> tuple[Any, ...]:
    return row["topic"], row["life"], row.get("partition", 0)


SEVERITY = ("offline_now", "unavailable_ms", "leader_moves")
STATES = ("stuck", "running", "done")
SORT_KEYS: dict[str, Callable[[Row], Any]] = {
    "elections": lambda row: row["epoch"],
    "topics": lambda row: (
        row["deletion"] != "stuck",
        *(-row[key] for key in SEVERITY),
        *topic_order(row),
    ),
    "creations": lambda row: (row["ms"] is not None, -(row["ms"] or 0), *topic_order(row)),
    "deletions": lambda row: (STATES.index(row["state"]), -row["ms"], *topic_order(row)),
    "brokers": lambda row: (row["broker"], row["from"]),
    "incidents": lambda row: (row["until"] is not None, -row["from"].timestamp(), row["cause"]),
    "outages": lambda row: (row["until"] is not None, -row["ms"], *topic_order(row)),
    "leader_moves": lambda row: (row["at"], *topic_order(row)),
    "steps": lambda row: (-row["ms"], *topic_order(row), row["step"], row["broker"] or 0),
}


def json_types(value: Any) -> Any:
    """Convert to JSON types; times are formatted as in events."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, dict):
        return {key: json_types(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [json_types(inner) for inner in value]
    return value
