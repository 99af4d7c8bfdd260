"""Report page: the report as one self-contained HTML file, for desktop and phone, light and dark.

The page starts with what operators need first: current problems, past incidents, and the controllers.

page.html.jinja is the template. Every expression in it is made printable and escaped: names from the cluster cannot
become markup or control characters. The Content-Security-Policy forbids the page to load or send anything.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from barnabas.history.report import Document, is_failover
from barnabas.history.timeline import (
    LANE_HEIGHT,
    TICK_STEPS,
    affected_text,
    lanes_of,
    scale_of,
    topics_shown,
)
from barnabas.history.words import (
    Row,
    describe_cause,
    format_duration,
    format_outage,
    format_time,
    format_unnoticed,
    join_numbers,
    millis_of,
    partition_list,
    step_name,
    topic_label,
)
from barnabas.printable import LINE_MAX, printable

if TYPE_CHECKING:
    from jinja2 import Environment, Template

LIMITS = {"CREATIONS": 12, "OUTAGES": 20, "STEPS": 12, "ROWS": 2000, "ALERTS": 10}
"""Maximum numbers of rows in each table, and of lines in the alert. The Parquet files have all rows."""


def render_page(document: Document) -> str:
    script = asset("page.js")
    waits = [row["ms"] for row in document["creations"] if row["ms"] is not None]
    scale = scale_of(document)
    html: str = template().render(
        **document,
        **LIMITS,
        style=asset("page.css"),
        script=script,
        script_digest=b64encode(sha256(script.encode()).digest()).decode(),
        scale=scale,
        ticks=list(scale.ticks()),
        tick_steps=TICK_STEPS,
        lanes=lanes_of(document, scale),
        lane_height=LANE_HEIGHT,
        topic_lanes=len(topics_shown(document["topics"])),
        slowest_creation_ms=max([*waits, 1]),
    )
    return html


def asset(name: str) -> str:
    return files("barnabas.history").joinpath(name).read_text("utf-8")


def page_environment() -> Environment:
    """Return an environment for templates that makes every expression printable and escapes it."""
    # Imported here because only the `spark` extra has Jinja2, and other commands run without it.
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def to_printable(value: Any) -> Any:
        if isinstance(value, str) and not isinstance(value, Markup):
            return printable(value, LINE_MAX)
        return value

    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=to_printable,
        trim_blocks=True,
        keep_trailing_newline=True,
    )


def template() -> Template:
    environment = page_environment()
    filters: tuple[Callable[..., Any], ...] = (
        affected_text, affected_topics, creation_steps, describe_cause, format_duration, format_outage, format_time,
        format_unnoticed, join_numbers, millis_of, partition_list, requester_name, step_name, topic_label, topic_state,
    )  # fmt: skip
    environment.filters |= {each.__name__: each for each in filters}
    environment.tests["failover"] = is_failover
    return environment.from_string(asset("page.html.jinja"))


def creation_steps(row: Row) -> list[tuple[str, int, str]]:
    """Return the phases of a creation: CSS class, duration in ms and name."""
    wait = max(0, millis_of(row["assigned_at"]) - millis_of(row["requested_at"]))
    phases = [("wait", wait, "the controller"), ("elect", row["ms"] - wait, "an election")]
    return [phase for phase in phases if phase[1] > 0]


def affected_topics(incident: Row, outages: Sequence[Row]) -> list[Row]:
    """Return the topics of an incident with their partitions and their longest outage, the longest first."""
    topics: dict[tuple[str, int], Row] = {}
    for row in outages:
        if row["incident"] != incident["incident"]:
            continue
        name = {"topic": row["topic"], "life": row["life"]}
        empty = {**name, "partitions": set(), "ms": 0, "is_ongoing": False}
        topic = topics.setdefault((row["topic"], row["life"]), empty)
        topic["partitions"].add(row["partition"])
        topic["ms"] = max(topic["ms"], row["ms"])
        topic["is_ongoing"] = topic["is_ongoing"] or row["until"] is None
    return sorted(topics.values(), key=lambda each: (-each["ms"], each["topic"], each["life"]))


def requester_name(row: Row) -> str:
    name = row["by"] or ("a client without a name" if row["host"] else "")
    return f"{name}, automatically" if row.get("automatic") else name


def topic_state(row: Row) -> str:
    if row["deletion"] == "done":
        return "deleted"
    if row["deletion"] is not None:
        return "deletion stuck" if row["deletion"] == "stuck" else "being deleted"
    return f"{row['offline_now']} offline" if row["offline_now"] else "ok"
