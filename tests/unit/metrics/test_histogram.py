"""Histograms of durations: buckets, quantiles, and the compiled twin in broker/connection.py."""

from __future__ import annotations

from math import isnan
from random import Random

from barnabas.broker import connection
from barnabas.metrics.histogram import (
    BUCKETS,
    QUANTILES,
    WINDOW_SECONDS,
    RecentBuckets,
    add_seconds,
    bucket_of,
    bucket_start,
    find_quantiles,
    merge_buckets,
    new_buckets,
    summarize,
    total_count,
    with_zeros,
)


def test_bucket_starts_are_the_smallest_values_of_their_buckets() -> None:
    for bucket in range(1, BUCKETS):
        start = bucket_start(bucket)
        assert bucket_of(start) == bucket
        assert bucket_of(start - 1) == bucket - 1


def test_compiled_twin_adds_to_the_same_buckets() -> None:
    random = Random(1)
    ours, twin = new_buckets(), new_buckets()
    for seconds in [
        0.0,
        7e-6,
        8e-6,
        15e-6,
        16e-6,
        1e5,
        *(10 ** random.uniform(-7, 5) for _ in range(2000)),
    ]:
        add_seconds(ours, seconds)
        connection.record_time(twin, seconds)
    assert ours == twin
    assert total_count(twin) == 2006


def test_quantiles_are_at_most_12_percent_off() -> None:
    random = Random(2)
    values = sorted(random.expovariate(1 / 0.02) for _ in range(10_000))
    buckets = new_buckets()
    for seconds in values:
        add_seconds(buckets, seconds)
    for quantile, found_ms in zip(QUANTILES, find_quantiles(buckets), strict=True):
        exact_ms = values[int(float(quantile) * len(values)) - 1] * 1000
        assert abs(found_ms - exact_ms) <= 0.12 * exact_ms


def test_quantiles_without_values_are_nan() -> None:
    assert all(map(isnan, find_quantiles(new_buckets())))


def test_summary_counts_all_values_and_has_quantiles_of_recent_ones() -> None:
    buckets, recent = new_buckets(), RecentBuckets()
    add_seconds(buckets, 1.0)
    assert summarize(buckets, recent.find(buckets, 0.0)).quantiles[0] > 900
    for _ in range(10):
        add_seconds(buckets, 0.001)
    later = summarize(buckets, recent.find(buckets, WINDOW_SECONDS))
    assert later.count == 11
    assert round(later.sum_ms) == 1010
    assert later.quantiles[-1] < 2
    idle = summarize(buckets, recent.find(buckets, 3 * WINDOW_SECONDS))
    assert idle.count == 11
    recent.find(buckets, 4 * WINDOW_SECONDS)
    idle = summarize(buckets, recent.find(buckets, 4 * WINDOW_SECONDS))
    assert isnan(idle.quantiles[0])


def test_unrecorded_zeros_count_as_values() -> None:
    buckets = new_buckets()
    add_seconds(buckets, 1.0)
    filled = with_zeros(buckets, 100)
    assert summarize(filled).count == 100
    assert summarize(filled).quantiles[0] == 0.0


def test_merged_histograms_have_the_values_of_all() -> None:
    first, second = new_buckets(), new_buckets()
    add_seconds(first, 0.5)
    add_seconds(second, 1.5)
    merged = summarize(merge_buckets([first, second]))
    assert (merged.count, merged.sum_ms) == (2, 2000.0)
    assert total_count(merge_buckets([])) == 0
