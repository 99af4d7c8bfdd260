"""Timeline of the report page: a lane for the controllers and one for each eventful topic.

    controllers  ▕ 3 ████████████▏1 ███████████████▏
    orders       ━━━━━━╷━━▉▉━━━━━╷━━━━━━▨▨▨▨▨▨▨▨▨▨
                       leader moved   outage        pending deletion

Marks have times in milliseconds from the left edge. The template draws them at percentages of the width, so the
timeline fits any screen. The script of the page zooms by moving the marks; without it the whole history is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Literal, NamedTuple

from barnabas.history.report import Document, is_failover
from barnabas.history.words import (
    Row,
    format_duration,
    format_time,
    join_numbers,
    millis_of,
    topic_label,
)

LANES_MAX, LANES_MIN = 40, 12
LANE_HEIGHT = 22
TICKS = 6
COLOURS = 6
"""Number of colours for controllers. The colour is the broker id modulo this number."""


class AxisTick(NamedTuple):
    offset_ms: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Converts times to percentages of the width."""

    start: datetime
    end: datetime

    @property
    def length_ms(self) -> int:
        return max(1, millis_of(self.end) - millis_of(self.start))

    def offset_ms(self, at: datetime) -> int:
        return min(max(millis_of(at) - millis_of(self.start), 0), self.length_ms)

    def percent(self, offset_ms: int) -> str:
        return f"{100 * offset_ms / self.length_ms:.3f}%"

    def ticks(self) -> Iterator[AxisTick]:
        """Yield the ticks of the whole history. The script replaces their texts after zooming."""
        for index in range(TICKS + 1):
            offset_ms = self.length_ms * index // TICKS
            at = format_time(self.start + timedelta(milliseconds=offset_ms))
            yield AxisTick(offset_ms, at[5:19] if self.length_ms > 86_400_000 else at[11:])


def scale_of(document: Document) -> Scale:
    """Return the scale of the whole history with margins, up to now if an outage is ongoing or a deletion is stuck."""
    start, end = document["history"]["from"], document["history"]["until"]
    is_ongoing = any(row["until"] is None for row in document["outages"])
    if is_ongoing or document["summary"]["stuck_deletions"]:
        end = document["made_at"]
    margin = max((end - start) * 0.015, timedelta(milliseconds=5))
    return Scale(start=start - margin, end=end + margin)


class TimelineMark(NamedTuple):
    """A mark in a lane. `kind` is a CSS class, `text` a label or tooltip, `y` the pixels to the top and bottom edge."""

    shape: Literal["bar", "tick", "label"]
    kind: str
    text: str
    start_ms: int
    end_ms: int
    y: int


class TimelineLane(NamedTuple):
    name: str
    marks: list[TimelineMark]
    kind: str = ""


def lanes_of(document: Document, scale: Scale) -> list[TimelineLane]:
    lanes = [controllers_lane(document, scale)]
    if document["incidents"]:
        lanes.append(incidents_lane(document, scale))
    return lanes + [
        topic_lane(topic, document, scale) for topic in topics_shown(document["topics"])
    ]


def topics_shown(topics: list[Row]) -> list[Row]:
    """Return the eventful topics, up to LANES_MAX. If there are few, add others up to LANES_MIN."""
    eventful = [topic for topic in topics if is_eventful(topic)][:LANES_MAX]
    calm = [topic for topic in topics if not is_eventful(topic)]
    return eventful + calm[: max(0, LANES_MIN - len(eventful))]


def is_eventful(topic: Row) -> bool:
    return bool(topic["unavailable_ms"] or topic["leader_moves"] or topic["deletion"])


# ---- lanes ----------------------------------------------------------------------------------------------------


def controllers_lane(document: Document, scale: Scale) -> TimelineLane:
    elections = document["elections"]
    ends = [row["elected_at"] or row["first_at"] for row in elections[1:]] + [scale.end]
    marks = []
    for row, end in zip(elections, ends, strict=True):
        begin = row["elected_at"] or row["first_at"]
        title = f"controller {row['controller']}, epoch {row['epoch']}, from {format_time(begin)}"
        kind = f"epoch c{row['controller'] % COLOURS}"
        marks.append(bar(scale, begin, row["resigned_at"] or end, kind, title, y=3))
        marks.append(label(scale, begin, str(row["controller"])))
    return TimelineLane("controllers", [*marks, *failover_lines(document, scale)], "top")


def incidents_lane(document: Document, scale: Scale) -> TimelineLane:
    """Return the lane of all incidents, including those of topics without a lane."""
    marks = [
        bar(scale, row["from"], row["until"] or scale.end, "outage", incident_title(row), y=3)
        for row in document["incidents"]
    ]
    return TimelineLane("incidents", [*failover_lines(document, scale), *marks], "top")


def topic_lane(topic: Row, document: Document, scale: Scale) -> TimelineLane:

    def rows_of_topic(table: str) -> list[Row]:
        return [row for row in document[table] if (row["topic"], row["life"]) == life]

    life = topic["topic"], topic["life"]
    begin = topic["requested_at"] or scale.start
    marks = [bar(scale, begin, topic["deleted_at"] or scale.end, "life", life_title(topic), y=9)]
    for row in rows_of_topic("deletions"):
        end = row["finished_at"] or scale.end
        marks.append(bar(scale, row["requested_at"], end, row["state"], deletion_title(row), y=5))
    for outage in merge_outages(rows_of_topic("outages"), document["made_at"]):
        end = outage.until or scale.end
        marks.append(bar(scale, outage.start, end, "outage", outage.title, y=3))
    marks += [
        tick(scale, at, "move", title) for at, title in merge_moves(rows_of_topic("leader_moves"))
    ]
    kind = "bad" if topic["offline_now"] or topic["deletion"] == "stuck" else ""
    return TimelineLane(topic_label(topic), [*failover_lines(document, scale), *marks], kind)


def failover_lines(document: Document, scale: Scale) -> list[TimelineMark]:
    return [
        tick(scale, row["elected_at"], "failover", f"controller {row['controller']} elected", y=0)
        for row in document["elections"]
        if is_failover(row)
    ]


# ---- titles ---------------------------------------------------------------------------------------------------


def incident_title(row: Row) -> str:
    lasted = "ongoing" if row["until"] is None else f"up to {format_duration(row['longest_ms'])}"
    return (
        f"{row['reason']}, {format_time(row['from'])}: "
        f"{row['partitions']:,} partitions of "
        f"{row['topics']:,} topics without a leader, {lasted}"
    )


def life_title(topic: Row) -> str:
    parts = [topic_label(topic)]
    if topic["requested_at"] is not None:
        parts.append(f"created {format_time(topic['requested_at'])}")
    if topic["online_after_ms"] is not None:
        parts.append(f"online after {format_duration(topic['online_after_ms'])}")
    if topic["deleted_at"] is not None:
        parts.append(f"deleted {format_time(topic['deleted_at'])}")
    return ", ".join(parts)


def deletion_title(row: Row) -> str:
    title = f"deletion {row['state']}, since {format_time(row['requested_at'])}, {format_duration(row['ms'])}"
    if row["state"] != "done" and row["waits_for"]:
        title += f"; waits for broker {join_numbers(row['waits_for'])}"
    return title


@dataclass(slots=True, kw_only=True)
class Outage:
    """Time in which one or more partitions of a topic had no leader."""

    start: datetime
    until: datetime | None
    partitions: set[int]
    cause: str

    @property
    def title(self) -> str:
        numbers = sorted(self.partitions)
        shown = join_numbers(numbers[:8]) + (", …" if len(numbers) > 8 else "")
        noun = "partition" if len(numbers) == 1 else "partitions"
        lasted = "ongoing"
        if self.until is not None:
            lasted = format_duration(millis_of(self.until) - millis_of(self.start))
        return f"no leader: {noun} {shown}, from {format_time(self.start)}, {lasted} ({self.cause})"


def merge_outages(outages: Sequence[Row], now: datetime) -> list[Outage]:
    """Merge outages that overlap: a broker failure affects many partitions."""
    merged: list[Outage] = []
    for row in sorted(outages, key=lambda row: row["from"]):
        last = merged[-1] if merged else None
        if last is None or row["from"] > (last.until or now):
            merged.append(
                Outage(
                    start=row["from"],
                    until=row["until"],
                    partitions={row["partition"]},
                    cause=row["reason"],
                )
            )
            continue
        last.partitions.add(row["partition"])
        if row["until"] is None or (last.until is not None and row["until"] > last.until):
            last.until = row["until"]
    return merged


def merge_moves(moves: Sequence[Row]) -> Iterator[tuple[datetime, str]]:
    """Yield one time and tooltip for all moves at the same time."""
    for at, group in groupby(sorted(moves, key=lambda row: row["at"]), key=lambda row: row["at"]):
        rows = list(group)
        moved = ", ".join(f"{row['partition']}: {row['before']}→{row['after']}" for row in rows[:6])
        more = f" and {len(rows) - 6} more" if len(rows) > 6 else ""
        yield (
            at,
            f"leader moved, {format_time(at)} ({rows[0]['reason']}); {moved}{more}",
        )


# ---- marks ----------------------------------------------------------------------------------------------------


def bar(
    scale: Scale, start: datetime, end: datetime, kind: str, title: str, *, y: int
) -> TimelineMark:
    start_ms, end_ms = scale.offset_ms(start), scale.offset_ms(end)
    return TimelineMark("bar", kind, title, start_ms, max(start_ms, end_ms), y)


def tick(scale: Scale, at: datetime, kind: str, title: str, y: int = 2) -> TimelineMark:
    return bar(scale, at, at, kind, title, y=y)._replace(shape="tick")


def label(scale: Scale, at: datetime, text: str) -> TimelineMark:
    return bar(scale, at, at, "id", text, y=0)._replace(shape="label")
