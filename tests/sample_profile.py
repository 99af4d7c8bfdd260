"""A profile with every kind of finding, for tests of the text and the page."""

from __future__ import annotations

from collections import Counter

import numpy as np

from barnabas.jobs.range_summary import RangeSummary, size_slots
from barnabas.jobs.topic_profile import KeyClass, TopicProfile, build_profile

HOSTILE = "<script>alert(1)</script>"
START_MS = 1_777_600_800_000  # 2026-05-01 02:00 UTC


def sample_profile() -> TopicProfile:
    """Return four partitions, one of them empty and one with most records: 1,000 records in 20 minutes."""
    counts = {0: 100, 1: 780, 2: 120}
    summaries = [
        RangeSummary(
            partition=partition,
            records=count,
            key_bytes=6 * count,
            value_bytes=120 * count,
            keyless=50 if partition == 0 else 0,
            tombstones=10 if partition == 0 else 0,
            first_offset=1000,
            last_offset=1000 + count - 1 + (25 if partition == 2 else 0),
            gaps=3 if partition == 2 else 0,
            first_ms=START_MS,
            last_ms=START_MS + 1_190_000,
            older=7 if partition == 1 else 0,
            step_back_ms=2500 if partition == 1 else 0,
            value_bytes_min=80,
            value_bytes_max=64_000 if partition == 1 else 195,
            buckets=spread(count),
            size_slots=slots(count, largest=64_000 if partition == 1 else 195),
        )
        for partition, count in counts.items()
    ]
    classes = [
        KeyClass(keyless=False, records=380, keys=1, repeats=40, examples=[b"user-7"]),
        KeyClass(keyless=False, records=70, keys=1, repeats=0, examples=[HOSTILE.encode()]),
        KeyClass(keyless=False, records=5, keys=100, repeats=0, examples=[b"a\n\x1b[31m", b"\xff"]),
        KeyClass(keyless=True, records=1, keys=50, repeats=0),
    ]
    return build_profile(
        "orders",
        [0, 1, 2, 3],
        summaries,
        classes,
        span_ms=(START_MS, START_MS + 1_190_000),
        bucket_ms=30_000,
    )


def slots(count: int, largest: int) -> dict[int, int]:
    sizes = [80 + 5 * (number % 24) for number in range(count - 1)] + [largest]
    return dict(Counter(size_slots(np.array(sizes)).tolist()))


def spread(count: int) -> dict[int, tuple[int, int]]:
    """Two thirds of the records in the first of 40 buckets."""
    first = START_MS // 30_000
    return {
        first + number: (share, 126 * share)
        for number in range(40)
        if (share := 2 * count // 3 if number == 0 else count // 120)
    }
