"""Timeline of the report page: lanes for the controllers, the brokers, the incidents and the eventful topics.

    controllers  ▕ 3 ████████████▏1 ███████████████▏
    broker 2     ━━━━━━▨▨▨▨▨━━━━━━━━━━━━━━━━━━━━━━━━━
                       failed
    incidents          ▉▉
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

from barnabas.history.brokers import FAILED, UP
from barnabas.history.report import Document, is_failover
from barnabas.history.words import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    Row,
    format_duration,
    format_outage,
    format_time,
    join_numbers,
    millis_of,
    partition_list,
    topic_label,
)

LANES_MAX, LANES_MIN = 40, 12
BROKER_LANES_MAX = 20
LANE_HEIGHT = 22
TICKS_MAX = 8
TICK_STEPS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(SECOND * each for each in (1, 2, 5, 10, 20, 30)),
    *(MINUTE * each for each in (1, 2, 5, 10, 20, 30)),
    *(HOUR * each for each in (1, 2, 3, 6, 12)),
    *(DAY * each for each in (1, 2, 5, 10, 20, 50, 100)),
)
"""Times between ticks of the axis, in milliseconds. All ticks are at multiples of the step by the clock."""
EDGE = 0.04
"""Part of the width at each edge in which labels of ticks do not fit."""
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

    def anchor(self, offset_ms: int) -> Literal["start", "middle", "end"]:
        """Return which part of a label is at its tick, so that labels at the edges are not cut off."""
        part = offset_ms / self.length_ms
        return "start" if part < EDGE else "end" if part > 1 - EDGE else "middle"

    def ticks(self) -> Iterator[AxisTick]:
        """Yield the ticks of the whole history, at round times. The script replaces them when it zooms (page.js)."""
        step = tick_step(self.length_ms)
        start_ms = millis_of(self.start)
        for at_ms in range(-(-start_ms // step) * step, start_ms + self.length_ms + 1, step):
            offset_ms = at_ms - start_ms
            text = format_time(self.start + timedelta(milliseconds=offset_ms))
            yield AxisTick(offset_ms, text[tick_slice(step, self.length_ms)])


def tick_step(length_ms: int) -> int:
    """Return the smallest step with at most TICKS_MAX ticks.

    >>> tick_step(9_000), tick_step(100_000), tick_step(86_400_000)
    (2000, 20000, 21600000)
    """
    found = (step for step in TICK_STEPS if length_ms // step < TICKS_MAX)
    return next(found, TICK_STEPS[-1])


def tick_slice(step: int, length_ms: int) -> slice:
    """Return the part of a formatted time that the ticks show: the day if it changes, and no zeros at the end.

    >>> at = "2026-05-01 08:00:00.000"
    >>> [at[tick_slice(step, 9 * step)] for step in (500, 20_000, 600_000, 21_600_000)]
    ['08:00:00.000', '08:00:00', '08:00', '05-01 08:00']
    """
    end = 10 if step >= DAY else 16 if step >= MINUTE else 19 if step >= SECOND else 23
    return slice(5 if length_ms > DAY or step >= DAY else 11, end)


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
    lanes += brokers_lanes(document, scale)
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


def brokers_lanes(document: Document, scale: Scale) -> list[TimelineLane]:
    """Return a lane for each broker. If there are too many, those that were down come first."""
    rows = document["brokers"]
    down = {row["broker"] for row in rows if row["state"] != UP}
    shown = sorted({row["broker"] for row in rows}, key=lambda broker: (broker not in down, broker))
    return [
        broker_lane(broker, [row for row in rows if row["broker"] == broker], scale)
        for broker in sorted(shown[:BROKER_LANES_MAX])
    ]


def broker_lane(broker: int, rows: Sequence[Row], scale: Scale) -> TimelineLane:
    marks = []
    for row in rows:
        y, kind = (8, "up") if row["state"] == UP else (4, row["state"].replace(" ", "-"))
        end = row["until"] or scale.end
        marks.append(bar(scale, row["from"], end, kind, broker_title(row), y=y))
    kind = "broker bad" if rows[-1]["state"] == FAILED else "broker"
    return TimelineLane(f"broker {broker}", marks, kind)


def broker_title(row: Row) -> str:
    since = f"broker {row['broker']}: {row['state']} since {format_time(row['from'])}"
    lasted = f"{format_duration(row['ms'])}{' so far' if row['until'] is None else ''}"
    return f"{since}, {lasted}"


def incidents_lane(document: Document, scale: Scale) -> TimelineLane:
    """Return the lane of all incidents, including those of topics without a lane."""
    marks = [
        bar(
            scale,
            row["from"],
            row["until"] or scale.end,
            outage_kind(row["until"]),
            incident_title(row),
            y=3,
        )
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
        kind = outage_kind(outage.until)
        marks.append(bar(scale, outage.start, end, kind, outage.title, y=3))
    marks += [
        tick(scale, at, "move", title) for at, title in merge_moves(rows_of_topic("leader_moves"))
    ]
    kind = "bad" if topic["offline_now"] or topic["deletion"] == "stuck" else ""
    return TimelineLane(topic_label(topic), [*failover_lines(document, scale), *marks], kind)


def outage_kind(until: datetime | None) -> str:
    return "outage ongoing" if until is None else "outage"


def failover_lines(document: Document, scale: Scale) -> list[TimelineMark]:
    return [
        tick(scale, row["elected_at"], "failover", f"controller {row['controller']} elected", y=0)
        for row in document["elections"]
        if is_failover(row)
    ]


# ---- titles ---------------------------------------------------------------------------------------------------


def incident_title(row: Row) -> str:
    lasted = format_outage(row["longest_ms"], row["unnoticed_ms"], row["until"] is None)
    return f"{row['reason']}, {format_time(row['from'])}: {affected_text(row)} without a leader for {lasted}"


def affected_text(row: Row) -> str:
    """
    >>> affected_text({"partitions": 1, "topics": 1}), affected_text({"partitions": 1200, "topics": 40})
    ('1 partition', '1,200 partitions of 40 topics')
    """
    text = f"{row['partitions']:,} partition{'s' if row['partitions'] > 1 else ''}"
    return f"{text} of {row['topics']:,} topics" if row["topics"] > 1 else text


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
    reasons: list[str]
    ms: int
    unnoticed_ms: int | None

    @property
    def title(self) -> str:
        lasted = format_outage(self.ms, self.unnoticed_ms, self.until is None)
        reasons = "; ".join(dict.fromkeys(self.reasons))
        partitions = partition_list(self.partitions)
        return f"no leader: {partitions}, from {format_time(self.start)}, {lasted} ({reasons})"


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
                    reasons=[row["reason"]],
                    ms=row["ms"],
                    unnoticed_ms=row["unnoticed_ms"],
                )
            )
            continue
        last.partitions.add(row["partition"])
        if row["until"] is None or (last.until is not None and row["until"] > last.until):
            last.until = row["until"]
        last.reasons.append(row["reason"])
        last.ms = millis_of(last.until or now) - millis_of(last.start)
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
