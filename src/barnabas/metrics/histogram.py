"""Histograms of durations: plain lists of integers, so that recording a value is one increment.

    [count, count, … , sum in µs]

A duration is rounded down to whole microseconds. Buckets 0 to 7 hold one value each. From 8 µs on, each power of two
is divided into eight buckets, so a quantile is at most 12 % off. broker/connection.py has a compiled twin of
`add_seconds`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from msgspec import Struct

Buckets = list[int]

BUCKETS = 8 * 30
"""The last bucket begins at 67 minutes; longer durations are in it too."""
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
WINDOW_SECONDS = 60.0
"""Quantiles are of the last one to two minutes. Kafka weights recent values more instead."""


def new_buckets() -> Buckets:
    return [0] * (BUCKETS + 1)


def add_seconds(buckets: Buckets, seconds: float) -> None:
    micros = max(int(seconds * 1e6), 0)
    buckets[bucket_of(micros)] += 1
    buckets[BUCKETS] += micros


def add_many(buckets: Buckets, micros: int, count: int) -> None:
    """Add the same duration `count` times."""
    buckets[bucket_of(micros)] += count
    buckets[BUCKETS] += count * micros


def bucket_of(micros: int) -> int:
    """
    >>> [bucket_of(micros) for micros in (0, 7, 8, 9, 16, 17, 18, 10**12)]
    [0, 7, 8, 9, 16, 16, 17, 239]
    """
    if micros < 8:
        return micros
    shift = micros.bit_length() - 4
    return min(8 * shift + (micros >> shift), BUCKETS - 1)


def bucket_start(bucket: int) -> int:
    """Return the smallest number of microseconds in a bucket.

    >>> [bucket_start(bucket) for bucket in (0, 7, 8, 16, 17, 24)]
    [0, 7, 8, 16, 18, 32]
    """
    if bucket < 8:
        return bucket
    shift, rest = divmod(bucket - 8, 8)
    return (8 + rest) << shift


def total_count(buckets: Sequence[int]) -> int:
    return sum(buckets) - buckets[BUCKETS]


def merge_buckets(several: Iterable[Sequence[int]]) -> Buckets:
    return [sum(each) for each in zip(new_buckets(), *several, strict=True)]


class Summary(Struct, frozen=True):
    """Summary of a histogram on the page: quantiles of recent values, and the sum and count of all. Times are in ms."""

    quantiles: tuple[float, ...]
    """In the order of QUANTILES; NaN without recent values."""
    sum_ms: float
    count: int


def summarize(buckets: Sequence[int], earlier: Sequence[int] | None = None) -> Summary:
    """Return the summary of a histogram. `earlier` is a copy of it: quantiles are of the values since then."""
    recent = (
        buckets
        if earlier is None
        else [new - old for new, old in zip(buckets, earlier, strict=True)]
    )
    return Summary(find_quantiles(recent), buckets[BUCKETS] / 1000, total_count(buckets))


def with_zeros(buckets: Sequence[int], count: int) -> Buckets:
    """Return a copy of a histogram, filled up with values of 0 to `count` values."""
    filled = list(buckets)
    filled[0] += count - total_count(buckets)
    return filled


def find_quantiles(buckets: Sequence[int]) -> tuple[float, ...]:
    """Return the quantiles in ms, interpolated inside their buckets."""
    count = total_count(buckets)
    if count <= 0:
        return (float("nan"),) * len(QUANTILES)
    found: list[float] = []
    below = bucket = 0
    for quantile in QUANTILES:
        rank = float(quantile) * count
        while below + buckets[bucket] < rank:
            below += buckets[bucket]
            bucket += 1
        start = bucket_start(bucket)
        share = (rank - below) / buckets[bucket] if buckets[bucket] else 0.0
        width = 0 if bucket < 8 else bucket_start(bucket + 1) - start
        found.append((start + share * width) / 1000)
    return tuple(found)


class RecentBuckets:
    """Copies of a histogram from earlier scrapes, for quantiles of recent values."""

    def __init__(self) -> None:
        self.copies: deque[tuple[float, Buckets]] = deque()

    def find(self, buckets: Buckets, now: float) -> Buckets | None:
        """Return the copy that the recent values are counted from, None for all values. Call it at each scrape."""
        copies = self.copies
        if not copies or now - copies[-1][0] >= WINDOW_SECONDS:
            copies.append((now, list(buckets)))
        while len(copies) > 1 and now - copies[1][0] >= WINDOW_SECONDS:
            copies.popleft()
        began, earlier = copies[0]
        return earlier if now - began >= WINDOW_SECONDS else None
