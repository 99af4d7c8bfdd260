from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from barnabas.jobs.range_summary import RangeSummary
from barnabas.jobs.topic_profile import (
    BUCKETS_MAX,
    SIZE_BARS_MAX,
    KeyClass,
    bucket_length_ms,
    histogram,
    key_profile,
    key_text,
    merge_ranges,
    profile_document,
    quantile,
    rates_over_time,
    size_edges,
    size_profile,
)
from tests.sample_profile import sample_profile


def range_of(partition: int, first: int, last: int, records: int, **more: int) -> RangeSummary:
    summary = RangeSummary(
        partition=partition,
        first_offset=first,
        last_offset=last,
        records=records,
        first_ms=1000,
        last_ms=2000,
    )
    return replace(summary, **more)


def test_ranges_of_a_partition_are_merged_in_offset_order() -> None:
    parts = [
        range_of(1, 120, 199, 70, gaps=2, first_ms=1500, last_ms=4000),
        range_of(1, 0, 99, 100, first_ms=1000, last_ms=1800, older=1, step_back_ms=10),
        range_of(0, 5, 34, 30),
    ]
    first, second, third = merge_ranges([0, 1, 2], parts)
    assert (first.records, first.share, first.missing_offsets) == (30, 0.15, 0)
    assert (second.first_offset, second.last_offset, second.records) == (0, 199, 170)
    assert (second.gaps, second.missing_offsets) == (3, 30)
    assert (second.out_of_order, second.step_back_ms) == (2, 300)
    assert (third.partition, third.records, third.first_offset) == (2, 0, None)


@given(st.integers(0, 2**53), st.integers(0, 2**53))
def test_buckets_have_a_round_length_and_are_few(one: int, other: int) -> None:
    first, last = sorted((one, other))
    length = bucket_length_ms(first, last)
    assert last // length - first // length < BUCKETS_MAX


def test_rates_include_empty_buckets() -> None:
    parts = [
        RangeSummary(partition=0, first_offset=0, last_offset=1, buckets={5: (20, 200)}),
        RangeSummary(partition=1, first_offset=0, last_offset=1, buckets={5: (10, 100), 7: (2, 8)}),
    ]
    rates = rates_over_time(parts, 10_000)
    assert [(each.start_ms, each.records, each.bytes) for each in rates] == [
        (50_000, 30, 300),
        (60_000, 0, 0),
        (70_000, 2, 8),
    ]
    assert (rates[0].records_per_s, rates[0].bytes_per_s) == (3.0, 30.0)
    assert rates_over_time([], 1000) == []


@given(st.lists(st.integers(0, 500), min_size=1, max_size=50), st.sampled_from([0.5, 0.95, 0.99]))
def test_quantile_is_a_value_that_this_part_does_not_exceed(values: list[int], part: float) -> None:
    found = quantile(Counter(values), part)
    assert found in values
    assert sum(value <= found for value in values) >= part * len(values)
    assert sum(value < found for value in values) < part * len(values)


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=30))
def test_histogram_counts_every_value_in_its_bar(values: list[int]) -> None:
    edges = size_edges(min(values), quantile(Counter(values), 0.99), max(values))
    bars = histogram(Counter(values), edges)
    assert edges == sorted(set(edges))
    assert len(bars) <= SIZE_BARS_MAX + 4
    for bar in bars:
        assert bar.records == sum(bar.from_bytes <= value < bar.to_bytes for value in values)


def test_sizes_of_tombstones_only_are_unknown() -> None:
    assert size_profile([range_of(0, 0, 9, 10, tombstones=10)]) is None


def test_key_figures() -> None:
    keys = key_profile(
        [
            KeyClass(keyless=False, records=1, keys=40, repeats=0, examples=[b"a", b"b"]),
            KeyClass(keyless=False, records=30, keys=2, repeats=3, examples=[b"x", b"y"]),
            KeyClass(keyless=True, records=10, keys=5, repeats=45),
        ]
    )
    assert (keys.without_key, keys.distinct, keys.keys_for_half) == (50, 42, 2)
    assert [(top.key, top.records) for top in keys.top] == [
        ("x", 30),
        ("y", 30),
        ("a", 1),
        ("b", 1),
    ]
    assert keys.top[0].share == 30 / 150
    assert key_profile([]).keys_for_half == 0


@given(st.lists(st.integers(1, 20), min_size=1, max_size=30))
def test_keys_for_half_matches_enumeration(counts: list[int]) -> None:
    classes = [
        KeyClass(keyless=False, records=records, keys=keys, repeats=0)
        for records, keys in Counter(counts).items()
    ]
    falling, total, expected = sorted(counts, reverse=True), 0, 0
    for count in falling:
        if 2 * total >= sum(counts):
            break
        total, expected = total + count, expected + 1
    assert key_profile(classes).keys_for_half == expected


@pytest.mark.parametrize(
    ("key", "text"),
    [(b"user-7", "user-7"), (b"\xff\x00", "\\xff\x00"), (b"", ""), (b"k" * 100, "k" * 99 + "…")],
)
def test_key_text(key: bytes, text: str) -> None:
    assert key_text(key) == text


def test_profile_adds_up() -> None:
    profile = sample_profile()
    assert profile.records == 1000
    assert sum(each.share for each in profile.partitions) == pytest.approx(1)
    assert profile.imbalance == pytest.approx(3.12)
    assert (profile.missing_offsets, profile.out_of_order, profile.step_back_ms) == (25, 7, 2500)
    assert (profile.duplicates, profile.keys.without_key, profile.tombstones) == (40, 50, 10)
    assert profile.deleted_meanwhile == 0
    assert profile.sizes is not None
    assert sum(bar.records for bar in profile.sizes.histogram) == 1000
    document = profile_document(profile)
    assert document["sizes"]["max"] == 64_000  # type: ignore[index]
