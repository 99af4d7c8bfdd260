"""Profile of a topic: its figures, merged from the small results of the Spark jobs. Pure.

    [RangeSummary]  ──merge_ranges──►  partitions, rates, sizes
    [KeyClass]      ──key_profile───►  keys

All counts are exact. Two values may differ from the true ones: quantiles of value sizes above 1,023 bytes are rounded
down by at most 0.2 %, and two records with the same 64-bit hash of key and value count as equal.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise, takewhile

from msgspec import Struct, to_builtins

from barnabas.jobs.range_summary import RangeSummary, slot_size

BUCKETS_MAX = 60
SIZE_BARS_MAX = 20
TOP_KEYS = 10
KEY_TEXT_MAX = 100
"""Longer keys are cut."""

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1000, 60_000, 3_600_000, 86_400_000
BUCKET_LENGTHS_MS: tuple[int, ...] = (
    *(SECOND_MS * count for count in (1, 2, 5, 10, 15, 30)),
    *(MINUTE_MS * count for count in (1, 2, 5, 10, 15, 30)),
    *(HOUR_MS * count for count in (1, 2, 3, 6, 12)),
    *(DAY_MS * count * 10**power for power in range(9) for count in (1, 2, 5)),
)


class PartitionProfile(Struct, frozen=True, kw_only=True):
    """Offsets are None if the partition has no records."""

    partition: int
    records: int = 0
    share: float = 0.0
    key_bytes: int = 0
    value_bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    gaps: int = 0
    missing_offsets: int = 0
    """Offsets between the first and the last record without a record."""
    out_of_order: int = 0
    """Records with an earlier timestamp than their predecessor."""
    step_back_ms: int = 0
    """The largest difference between such a record and its predecessor."""


class RateBucket(Struct, frozen=True, kw_only=True):
    start_ms: int
    records: int
    bytes: int
    records_per_s: float
    bytes_per_s: float


class SizeBar(Struct, frozen=True, kw_only=True):
    """Values of `from_bytes` up to, not including, `to_bytes`."""

    from_bytes: int
    to_bytes: int
    records: int


class SizeProfile(Struct, frozen=True, kw_only=True):
    """Sizes of values, in bytes, without tombstones."""

    min: int
    median: int
    p95: int
    p99: int
    max: int
    histogram: list[SizeBar]


class KeyClass(Struct, frozen=True, kw_only=True):
    """All keys with the same number of records. `examples` are the first of them, in byte order.

    Records without key form classes of their own: there, `keys` counts distinct values.
    """

    keyless: bool
    records: int
    keys: int
    repeats: int
    """Records of the class that repeat the key and value of another record."""
    examples: list[bytes] = []


class TopKey(Struct, frozen=True, kw_only=True):
    key: str
    records: int
    share: float
    """Part of all records, also those without key."""


class KeyProfile(Struct, frozen=True, kw_only=True):
    without_key: int
    distinct: int
    top: list[TopKey]
    keys_for_half: int
    """Number of keys, the most frequent first, that half of the records with a key have."""


class TopicProfile(Struct, frozen=True, kw_only=True):
    """`first_ms` and `last_ms` are the lowest and the highest timestamp; None if no record has one."""

    topic: str
    records: int
    key_bytes: int
    value_bytes: int
    first_ms: int | None
    last_ms: int | None
    tombstones: int
    without_timestamp: int
    duplicates: int
    """Records that repeat the key and value of another record."""
    missing_offsets: int
    out_of_order: int
    step_back_ms: int
    imbalance: float
    """Records of the largest partition, divided by the mean."""
    partitions: list[PartitionProfile]
    bucket_ms: int
    rates: list[RateBucket]
    sizes: SizeProfile | None
    """None if all records are tombstones."""
    keys: KeyProfile
    deleted_meanwhile: int
    """Records that the first pass over the topic read, but not the second."""


def build_profile(
    topic: str,
    partitions: Sequence[int],
    summaries: Sequence[RangeSummary],
    classes: Sequence[KeyClass],
    *,
    span_ms: tuple[int, int] | None,
    bucket_ms: int,
) -> TopicProfile:
    """Build the profile from the results of both passes. `span_ms` are the lowest and the highest timestamp."""
    records = sum(each.records for each in summaries)
    merged = merge_ranges(partitions, summaries)
    first_ms, last_ms = span_ms or (None, None)
    return TopicProfile(
        topic=topic,
        records=records,
        key_bytes=sum(each.key_bytes for each in merged),
        value_bytes=sum(each.value_bytes for each in merged),
        first_ms=first_ms,
        last_ms=last_ms,
        tombstones=sum(each.tombstones for each in summaries),
        without_timestamp=sum(each.untimed for each in summaries),
        duplicates=sum(each.repeats for each in classes),
        missing_offsets=sum(each.missing_offsets for each in merged),
        out_of_order=sum(each.out_of_order for each in merged),
        step_back_ms=max(each.step_back_ms for each in merged),
        imbalance=max(each.records for each in merged) * len(merged) / max(records, 1),
        partitions=merged,
        bucket_ms=bucket_ms,
        rates=rates_over_time(summaries, bucket_ms),
        sizes=size_profile(summaries),
        keys=key_profile(classes),
        deleted_meanwhile=max(0, sum(each.records * each.keys for each in classes) - records),
    )


# ---- partitions -------------------------------------------------------------------------------------------------


def merge_ranges(
    partitions: Sequence[int], summaries: Iterable[RangeSummary]
) -> list[PartitionProfile]:
    """Return one profile per partition, also for those without records."""
    ordered = sorted(summaries, key=lambda each: (each.partition, each.first_offset))
    total = sum(each.records for each in ordered)
    found = {
        number: merge_partition(list(ranges), total)
        for number, ranges in groupby(ordered, key=lambda each: each.partition)
    }
    return [
        found.get(number) or PartitionProfile(partition=number) for number in sorted(partitions)
    ]


def merge_partition(ranges: Sequence[RangeSummary], total: int) -> PartitionProfile:
    """Merge consecutive ranges of a partition. Gaps and steps back between two ranges count too."""
    records = sum(each.records for each in ranges)
    first, last = ranges[0].first_offset, ranges[-1].last_offset
    gaps_between = sum(
        after.first_offset > before.last_offset + 1 for before, after in pairwise(ranges)
    )
    steps_back = [
        before.last_ms - after.first_ms
        for before, after in pairwise(each for each in ranges if each.first_ms is not None)
        if before.last_ms is not None and after.first_ms is not None and before.last_ms > after.first_ms
    ]  # fmt: skip
    return PartitionProfile(
        partition=ranges[0].partition,
        records=records,
        share=records / total,
        key_bytes=sum(each.key_bytes for each in ranges),
        value_bytes=sum(each.value_bytes for each in ranges),
        first_offset=first,
        last_offset=last,
        gaps=sum(each.gaps for each in ranges) + gaps_between,
        missing_offsets=last - first + 1 - records,
        out_of_order=sum(each.older for each in ranges) + len(steps_back),
        step_back_ms=max([0, *steps_back, *(each.step_back_ms for each in ranges)]),
    )


# ---- rates ------------------------------------------------------------------------------------------------------


def bucket_length_ms(first_ms: int, last_ms: int) -> int:
    """Return the shortest round length with which at most BUCKETS_MAX buckets cover the time span.

    >>> bucket_length_ms(0, 59_999), bucket_length_ms(0, 60_000), bucket_length_ms(500, 86_400_000)
    (1000, 2000, 1800000)
    """
    return next(
        length
        for length in BUCKET_LENGTHS_MS
        if last_ms // length - first_ms // length < BUCKETS_MAX
    )


def rates_over_time(summaries: Iterable[RangeSummary], bucket_ms: int) -> list[RateBucket]:
    """Return consecutive buckets from the first to the last record, also those without records."""
    records: Counter[int] = Counter()
    volumes: Counter[int] = Counter()
    for summary in summaries:
        for bucket, (count, volume) in summary.buckets.items():
            records[bucket] += count
            volumes[bucket] += volume
    if not records:
        return []
    seconds = bucket_ms / 1000
    return [
        RateBucket(
            start_ms=bucket * bucket_ms,
            records=records[bucket],
            bytes=volumes[bucket],
            records_per_s=records[bucket] / seconds,
            bytes_per_s=volumes[bucket] / seconds,
        )
        for bucket in range(min(records), max(records) + 1)
    ]


# ---- sizes ------------------------------------------------------------------------------------------------------


def size_profile(summaries: Iterable[RangeSummary]) -> SizeProfile | None:
    counts: Counter[int] = Counter()
    smallest: list[int] = []
    largest: list[int] = []
    for summary in summaries:
        if summary.value_bytes_min is not None and summary.value_bytes_max is not None:
            counts.update({slot_size(slot): count for slot, count in summary.size_slots.items()})
            smallest.append(summary.value_bytes_min)
            largest.append(summary.value_bytes_max)
    if not counts:
        return None
    least, most = min(smallest), max(largest)
    median, p95, p99 = (quantile(counts, part) for part in (0.5, 0.95, 0.99))
    return SizeProfile(
        min=least,
        median=max(least, median),
        p95=max(least, p95),
        p99=max(least, p99),
        max=most,
        histogram=histogram(counts, size_edges(least, p99, most)),
    )


def quantile(counts: Counter[int], part: float) -> int:
    """Return the smallest value that at least this part of all values does not exceed.

    >>> quantile(Counter({10: 98, 20: 1, 30: 1}), 0.5), quantile(Counter({10: 98, 20: 1, 30: 1}), 0.99)
    (10, 20)
    """
    values = sorted(counts)
    totals = list(accumulate(counts[value] for value in values))
    rank = part * totals[-1]
    return next(value for value, total in zip(values, totals, strict=True) if total >= rank)


def size_edges(least: int, p99: int, most: int) -> list[int]:
    """Return round edges of a histogram: linear, or in steps of 1, 2, 5, 10 if a few values are much larger than most.

    >>> size_edges(90, 130, 131), size_edges(100, 100, 100), size_edges(7, 90, 10_000)
    ([90, 95, 100, 105, 110, 115, 120, 125, 130, 135], [100, 101], [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000])
    """  # noqa: E501
    if most > 10 * max(p99, 1):
        below = [0, *takewhile(lambda step: step <= most, round_steps())]
        above = next(step for step in round_steps() if step > most)
        return [*below[bisect_right(below, least) - 1 :], above]
    width = next(step for step in round_steps() if most // step - least // step < SIZE_BARS_MAX)
    first = least // width * width
    return list(range(first, most // width * width + width + 1, width))


def round_steps() -> Iterator[int]:
    """Yield 1, 2, 5, 10, 20, 50, … without end."""
    power = 1
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10


def histogram(counts: Counter[int], edges: Sequence[int]) -> list[SizeBar]:
    bars = [0] * (len(edges) - 1)
    for value, count in counts.items():
        bars[max(0, bisect_right(edges, value) - 1)] += count
    return [
        SizeBar(from_bytes=low, to_bytes=high, records=records)
        for (low, high), records in zip(pairwise(edges), bars, strict=True)
    ]


# ---- keys -------------------------------------------------------------------------------------------------------


def key_profile(classes: Iterable[KeyClass]) -> KeyProfile:
    """Return the figures of the keys. Keys with equal counts are in byte order."""
    found = list(classes)
    total = sum(each.records * each.keys for each in found)
    keyed = sorted(
        (each for each in found if not each.keyless), key=lambda each: each.records, reverse=True
    )
    with_key = sum(each.records * each.keys for each in keyed)
    top = [
        TopKey(key=key_text(key), records=each.records, share=each.records / total)
        for each in keyed[:TOP_KEYS]
        for key in each.examples
    ]
    return KeyProfile(
        without_key=total - with_key,
        distinct=sum(each.keys for each in keyed),
        top=top[:TOP_KEYS],
        keys_for_half=keys_for(with_key / 2, keyed),
    )


def keys_for(records: float, falling: Iterable[KeyClass]) -> int:
    """Return how many of the most frequent keys it takes to reach this number of records."""
    keys, left = 0, records
    for each in falling:
        if left <= 0:
            break
        needed = min(each.keys, -int(-left // each.records))
        keys += needed
        left -= needed * each.records
    return keys


def key_text(key: bytes) -> str:
    """Return a key as text. Invalid UTF-8 becomes backslash escapes; a key of KEY_TEXT_MAX bytes or more is cut."""
    text = bytes(key[: KEY_TEXT_MAX - 1]).decode("utf-8", "backslashreplace")
    return text + "…" if len(key) >= KEY_TEXT_MAX else text


def profile_document(profile: TopicProfile) -> dict[str, object]:
    """Return the profile for JSON: the field names of the structs."""
    document: dict[str, object] = to_builtins(profile)
    return document
