"""The timeline of the page: a lane of inline SVG for the controllers and one for each topic that has something to show.

    controllers  ▕ 3 ████████████▏1 ███████████████▏
    orders       ━━━━━━╷━━▉▉━━━━━╷━━━━━━▨▨▨▨▨▨▨▨▨▨
                       leader moved   outage        deletion that waits

Every mark stands at a percentage of the width and carries its time in milliseconds from the left edge (`data-a`,
`data-b`): the page is as wide as its screen, and its script can show a part of the time by moving the marks. Without a
script it shows all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from barnabas.history.report import Document, Row, is_failover
from barnabas.history.words import (
    as_html,
    cause_name,
    listed,
    millis_of,
    moment,
    span,
    topic_name,
)

LANES, LANES_AT_LEAST = 40, 12
LANE_HEIGHT = 22
TICKS = 6
COLOURS = 6
"""Of controllers; two whose ids differ by this much look alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From times to percent of the width."""

    start: datetime
    end: datetime

    @property
    def length_ms(self) -> int:
        return max(1, millis_of(self.end) - millis_of(self.start))

    def offset_ms(self, at: datetime) -> int:
        return min(max(millis_of(at) - millis_of(self.start), 0), self.length_ms)

    def percent(self, offset_ms: int) -> str:
        return f"{100 * offset_ms / self.length_ms:.3f}%"


def scale_of(document: Document) -> Scale:
    """All of the history, and up to now where something has not ended; with some room at both ends."""
    start, end = document["history"]["from"], document["history"]["until"]
    lasts = any(row["until"] is None for row in document["outages"])
    if lasts or document["summary"]["stuck_deletions"]:
        end = document["made_at"]
    room = max((end - start) * 0.015, timedelta(milliseconds=5))
    return Scale(start=start - room, end=end + room)


def timeline(document: Document) -> str:
    scale = scale_of(document)
    shown = topics_shown(document["topics"])
    lanes = [controllers_lane(document, scale)]
    if document["incidents"]:
        lanes.append(incidents_lane(document, scale))
    lanes += [topic_lane(topic, document, scale) for topic in shown]
    rows = "\n".join(lanes)
    return (
        f'<div class="chart" data-start="{millis_of(scale.start)}" data-length="{scale.length_ms}">\n'
        f'{rows}\n<div class="lane axis"><span></span>{axis(scale)}</div>\n</div>'
    )


def topics_shown(topics: list[Row]) -> list[Row]:
    """Those to which something happened; where these are few, some others for company."""
    eventful = [topic for topic in topics if is_eventful(topic)][:LANES]
    calm = [topic for topic in topics if not is_eventful(topic)]
    return eventful + calm[: max(0, LANES_AT_LEAST - len(eventful))]


def is_eventful(topic: Row) -> bool:
    return bool(topic["unavailable_ms"] or topic["leader_moves"] or topic["deletion"])


# ---- lanes ----------------------------------------------------------------------------------------------------


def lane(name: str, marks: Iterable[str], kind: str = "") -> str:
    inside = "".join(marks)
    return (
        f'<div class="lane {kind}"><span class="name" title="{as_html(name)}">{as_html(name)}</span>'
        f'<svg width="100%" height="{LANE_HEIGHT}" role="img" aria-label="{as_html(name)}">{inside}</svg></div>'
    )


def controllers_lane(document: Document, scale: Scale) -> str:
    elections = document["elections"]
    ends = [row["elected_at"] or row["first_at"] for row in elections[1:]] + [scale.end]
    marks = []
    for row, end in zip(elections, ends, strict=True):
        begin = row["elected_at"] or row["first_at"]
        title = f"controller {row['controller']}, epoch {row['epoch']}, from {moment(begin)}"
        kind = f"epoch c{row['controller'] % COLOURS}"
        marks.append(bar(scale, begin, row["resigned_at"] or end, kind, title, y=3, height=16))
        marks.append(text(scale, begin, str(row["controller"])))
    return lane("controllers", [*marks, *failover_lines(document, scale)], "top")


def incidents_lane(document: Document, scale: Scale) -> str:
    """Those of all topics, of which only some have a lane."""
    marks = [
        bar(
            scale,
            row["from"],
            row["until"] or scale.end,
            "outage",
            told_incident(row),
            y=3,
            height=16,
        )
        for row in document["incidents"]
    ]
    return lane("incidents", [*failover_lines(document, scale), *marks], "top")


def told_incident(row: Row) -> str:
    lasted = "not ended" if row["until"] is None else f"up to {span(row['longest_ms'])}"
    return (
        f"{cause_name(row['cause'])}, {moment(row['from'])}: {row['partitions']:,} partitions of "
        f"{row['topics']:,} topics without a leader, {lasted}"
    )


def topic_lane(topic: Row, document: Document, scale: Scale) -> str:

    def mine(table: str) -> list[Row]:
        return [row for row in document[table] if is_of(topic, row)]

    begin = topic["requested_at"] or scale.start
    marks = [
        bar(
            scale, begin, topic["deleted_at"] or scale.end, "life", life_title(topic), y=9, height=4
        )
    ]
    for row in mine("deletions"):
        end = row["finished_at"] or scale.end
        marks.append(
            bar(scale, row["requested_at"], end, row["state"], deletion_title(row), y=5, height=12)
        )
    for outage in together(mine("outages"), document["made_at"]):
        end = outage.until or scale.end
        marks.append(bar(scale, outage.start, end, "outage", outage.title, y=3, height=16))
    marks += [tick(scale, at, "move", title) for at, title in moves_of(mine("leader_moves"))]
    kind = "bad" if topic["offline_now"] or topic["deletion"] == "stuck" else ""
    return lane(topic_name(topic), [*failover_lines(document, scale), *marks], kind)


def is_of(topic: Row, row: Row) -> bool:
    return bool(row["topic"] == topic["topic"] and row["life"] == topic["life"])


def failover_lines(document: Document, scale: Scale) -> list[str]:
    return [
        tick(scale, row["elected_at"], "failover", f"controller {row['controller']} elected", y=0)
        for row in document["elections"]
        if is_failover(row)
    ]


def life_title(topic: Row) -> str:
    told = [topic_name(topic)]
    if topic["requested_at"] is not None:
        told.append(f"created {moment(topic['requested_at'])}")
    if topic["online_after_ms"] is not None:
        told.append(f"online after {span(topic['online_after_ms'])}")
    if topic["deleted_at"] is not None:
        told.append(f"deleted {moment(topic['deleted_at'])}")
    return ", ".join(told)


def deletion_title(row: Row) -> str:
    told = f"deletion {row['state']}, since {moment(row['requested_at'])}, {span(row['ms'])}"
    if row["state"] != "done" and row["waits_for"]:
        told += f"; waits for broker {listed(row['waits_for'])}"
    return told


@dataclass(slots=True, kw_only=True)
class Outage:
    """Of one or more partitions, as long as any of them has no leader."""

    start: datetime
    until: datetime | None
    partitions: set[int]
    cause: str

    @property
    def title(self) -> str:
        numbers = sorted(self.partitions)
        shown = listed(numbers[:8]) + (", …" if len(numbers) > 8 else "")
        noun = "partition" if len(numbers) == 1 else "partitions"
        lasted = "not ended"
        if self.until is not None:
            lasted = span(millis_of(self.until) - millis_of(self.start))
        return f"no leader: {noun} {shown}, from {moment(self.start)}, {lasted} ({self.cause})"


def together(outages: Sequence[Row], now: datetime) -> list[Outage]:
    """Outages that overlap are one mark: a broker takes many partitions with it."""
    merged: list[Outage] = []
    for row in sorted(outages, key=lambda row: row["from"]):
        last = merged[-1] if merged else None
        if last is None or row["from"] > (last.until or now):
            merged.append(
                Outage(
                    start=row["from"],
                    until=row["until"],
                    partitions={row["partition"]},
                    cause=cause_name(row["cause"]),
                )
            )
            continue
        last.partitions.add(row["partition"])
        if row["until"] is None or (last.until is not None and row["until"] > last.until):
            last.until = row["until"]
    return merged


def moves_of(moves: Sequence[Row]) -> Iterator[tuple[datetime, str]]:
    """Moves of the same moment are one mark."""
    for at, group in groupby(sorted(moves, key=lambda row: row["at"]), key=lambda row: row["at"]):
        rows = list(group)
        told = ", ".join(f"{row['partition']}: {row['before']}→{row['after']}" for row in rows[:6])
        more = f" and {len(rows) - 6} more" if len(rows) > 6 else ""
        yield at, f"leader moved, {moment(at)} ({cause_name(rows[0]['cause'])}); {told}{more}"


# ---- marks ----------------------------------------------------------------------------------------------------


def bar(
    scale: Scale, start: datetime, end: datetime, kind: str, title: str, *, y: int, height: int
) -> str:
    a, b = scale.offset_ms(start), scale.offset_ms(end)
    return (
        f'<rect class="{kind}" data-a="{a}" data-b="{max(a, b)}" x="{scale.percent(a)}" y="{y}" '
        f'width="{scale.percent(max(0, b - a))}" height="{height}" rx="2">'
        f"<title>{as_html(title)}</title></rect>"
    )


def tick(scale: Scale, at: datetime, kind: str, title: str, y: int = 2) -> str:
    a = scale.offset_ms(at)
    x = scale.percent(a)
    return (
        f'<line class="{kind}" data-a="{a}" x1="{x}" x2="{x}" y1="{y}" y2="{LANE_HEIGHT - y}">'
        f"<title>{as_html(title)}</title></line>"
    )


def text(scale: Scale, at: datetime, words: str) -> str:
    a = scale.offset_ms(at)
    return f'<text class="id" data-a="{a}" x="{scale.percent(a)}" y="15" dx="5">{as_html(words)}</text>'


def axis(scale: Scale) -> str:
    """Written again by the script for the part that is shown."""
    marks = []
    for index in range(TICKS + 1):
        a = scale.length_ms * index // TICKS
        anchor = "start" if index == 0 else "end" if index == TICKS else "middle"
        at = moment(scale.start + timedelta(milliseconds=a))
        marks.append(
            f'<text x="{scale.percent(a)}" y="14" text-anchor="{anchor}" data-tick="{index}">'
            f"{at[5:19] if scale.length_ms > 86_400_000 else at[11:]}</text>"
        )
    return f'<svg width="100%" height="{LANE_HEIGHT}" aria-hidden="true">{"".join(marks)}</svg>'
