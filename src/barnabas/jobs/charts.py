"""Column charts as values that a template draws: positions in percent of the width, heights in pixels. Pure.

Axes have round ticks: the value axis in steps of 1, 2 or 5 times a power of ten, the time axis at whole seconds,
minutes, hours or days of UTC.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from barnabas.byte_units import bytes_text
from barnabas.jobs.topic_profile import (
    BUCKET_LENGTHS_MS,
    DAY_MS,
    MINUTE_MS,
    RateBucket,
    SizeBar,
    round_steps,
)

CHART_HEIGHT = 180
VALUE_TICKS_MAX = 5
TIME_TICKS_MAX = 6
SIZE_TICKS_MAX = 8
COLUMN_PART = 0.88
"""Part of its place that a column fills."""
COLUMN_WIDTH_MAX = 12.0


class ChartTick(NamedTuple):
    """A tick of an axis: percent of the width, or pixels from the top."""

    at: float
    text: str


class ChartColumn(NamedTuple):
    x: float
    width: float
    y: float
    height: float
    title: str


class ColumnChart(NamedTuple):
    columns: list[ChartColumn]
    values: list[ChartTick]
    bottom: list[ChartTick]


def rate_chart(
    buckets: Sequence[RateBucket],
    bucket_ms: int,
    rate_of: Callable[[RateBucket], float],
    text_of: Callable[[float], str],
) -> ColumnChart:
    titles = [f"{utc_text(each.start_ms)} UTC: {text_of(rate_of(each))}/s" for each in buckets]
    start_ms = buckets[0].start_ms
    return column_chart(
        [rate_of(each) for each in buckets],
        titles,
        time_ticks(start_ms, start_ms + bucket_ms * len(buckets)),
        text_of,
    )


def size_chart(bars: Sequence[SizeBar]) -> ColumnChart:
    titles = [f"{bar_range_text(bar)}: {bar.records:,} records" for bar in bars]
    edges = [bar.from_bytes for bar in bars] + [bars[-1].to_bytes]
    if len(bars) == 1:
        ticks = [ChartTick(50, bar_range_text(bars[0]))]
        return column_chart([bars[0].records], titles, ticks, count_text)
    every = math.ceil(len(edges) / SIZE_TICKS_MAX)
    ticks = [
        ChartTick(100 * index / len(bars), bytes_text(edge))
        for index, edge in enumerate(edges)
        if index % every == 0
    ]
    return column_chart([bar.records for bar in bars], titles, ticks, count_text)


def count_text(count: float) -> str:
    return f"{count:,.0f}"


def bar_range_text(bar: SizeBar) -> str:
    if bar.to_bytes == bar.from_bytes + 1:
        return f"{bar.from_bytes:,} B"
    return f"{bar.from_bytes:,} to {bar.to_bytes - 1:,} B"


def column_chart(
    values: Sequence[float],
    titles: Iterable[str],
    bottom: list[ChartTick],
    text_of: Callable[[float], str],
) -> ColumnChart:
    ticks = value_ticks(max(values))
    scale = CHART_HEIGHT / ticks[-1]
    place = 100 / len(values)
    width = min(COLUMN_PART * place, COLUMN_WIDTH_MAX)
    columns = [
        ChartColumn(
            x=round(place * (index + 0.5) - width / 2, 3),
            width=round(width, 3),
            # A value above 0 is always visible.
            y=round(CHART_HEIGHT - max(value * scale, 1.0 if value else 0.0), 1),
            height=round(max(value * scale, 1.0 if value else 0.0), 1),
            title=title,
        )
        for index, (value, title) in enumerate(zip(values, titles, strict=True))
    ]
    levels = [ChartTick(round(CHART_HEIGHT - tick * scale, 1), text_of(tick)) for tick in ticks]
    return ColumnChart(columns, levels, bottom)


def value_ticks(most: float) -> list[float]:
    """Return round values from 0 to the first one at or above `most`.

    >>> value_ticks(600_000), value_ticks(7), value_ticks(0.3), value_ticks(0)
    ([0, 200000, 400000, 600000], [0, 2, 4, 6, 8], [0.0, 0.1, 0.2, 0.3], [0, 1])
    """
    if most <= 0:
        return [0, 1]
    factor = 1
    while most * factor < VALUE_TICKS_MAX:
        factor *= 10
    scaled = most * factor
    step = next(
        step for step in round_steps() if math.ceil(round(scaled / step, 9)) < VALUE_TICKS_MAX
    )
    count = math.ceil(round(scaled / step, 9))
    return [step * index if factor == 1 else step * index / factor for index in range(count + 1)]


def time_ticks(start_ms: int, end_ms: int) -> list[ChartTick]:
    length = next(
        length for length in BUCKET_LENGTHS_MS if (end_ms - start_ms) // length <= TIME_TICKS_MAX
    )
    first = -(-start_ms // length) * length
    form = time_form(length, end_ms - start_ms)
    return [
        ChartTick(round(100 * (at - start_ms) / (end_ms - start_ms), 3), utc_text(at, form))
        for at in range(first, end_ms + 1, length)
    ]


def time_form(length_ms: int, span_ms: int) -> str:
    if length_ms >= DAY_MS:
        return "%Y-%m-%d"
    if span_ms > DAY_MS:
        return "%m-%d %H:%M"
    return "%H:%M" if length_ms >= MINUTE_MS else "%H:%M:%S"


def utc_text(ms: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a time in UTC. Times that Python cannot represent, after the year 9999, are numbers of milliseconds."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
