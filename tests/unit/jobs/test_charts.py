from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.jobs.charts import (
    CHART_HEIGHT,
    TIME_TICKS_MAX,
    VALUE_TICKS_MAX,
    rate_chart,
    size_chart,
    time_ticks,
    value_ticks,
)
from barnabas.jobs.topic_profile import RateBucket, SizeBar

HOUR = 3_600_000


@given(st.floats(0.001, 1e12))
def test_value_ticks_cover_the_largest_value(most: float) -> None:
    ticks = value_ticks(most)
    assert ticks[0] == 0
    assert ticks[-1] >= most * (1 - 1e-9)
    assert 2 <= len(ticks) <= VALUE_TICKS_MAX + 1
    digits = f"{ticks[1]:.0e}"
    assert digits[0] in "125"
    assert ticks[1] == pytest.approx(float(digits))


@given(st.integers(0, 4 * 10**12), st.integers(1000, 10**11))
def test_time_ticks_are_few_and_inside(start: int, span: int) -> None:
    ticks = time_ticks(start, start + span)
    assert len(ticks) <= TIME_TICKS_MAX + 1
    assert all(0 <= tick.at <= 100 for tick in ticks)


def test_time_ticks_are_round() -> None:
    start = 1_777_600_800_000 + 90_000  # 02:01:30
    hour = [tick.text for tick in time_ticks(start, start + HOUR)]
    assert hour == ["02:10", "02:20", "02:30", "02:40", "02:50", "03:00"]
    week = [tick.text for tick in time_ticks(start, start + 7 * 24 * HOUR)]
    assert week == ["2026-05-03", "2026-05-05", "2026-05-07"]


def test_columns_fill_the_chart_and_small_values_stay_visible() -> None:
    buckets = [
        RateBucket(start_ms=number * 1000, records=0, bytes=0, records_per_s=rate, bytes_per_s=0)
        for number, rate in enumerate((400.0, 0.001, 0.0, 200.0))
    ]
    chart = rate_chart(buckets, 1000, lambda each: each.records_per_s, str)
    assert [column.height for column in chart.columns] == [CHART_HEIGHT, 1.0, 0.0, CHART_HEIGHT / 2]
    assert chart.columns[0].y == 0
    assert chart.columns[0].title == "1970-01-01 00:00:00 UTC: 400.0/s"
    assert chart.columns[-1].x + chart.columns[-1].width <= 100


def test_single_size_has_one_narrow_column() -> None:
    chart = size_chart([SizeBar(from_bytes=100, to_bytes=101, records=7)])
    (column,) = chart.columns
    assert column.width == 12
    assert column.title == "100 B: 7 records"
    assert [tick.text for tick in chart.bottom] == ["100 B"]
