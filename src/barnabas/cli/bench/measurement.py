"""Results of a benchmark: counts, rates and percentiles of times. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field


class Measurement(Struct):
    """Counts and times of a benchmark. `times_s` has the seconds of each batch, fetch or record."""

    records: int = 0
    size: int = 0
    """Bytes of keys and values."""
    seconds: float = 0.0
    times_s: list[float] = field(default_factory=list)


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least this share of the values does not exceed; None without values.

    >>> percentile([3.0, 1.0, 2.0], 0.5), percentile([], 0.5)
    (2.0, None)
    """
    if not values:
        return None
    ordered = sorted(values)
    position = -(-len(ordered) * share // 1)  # rounded up
    return ordered[max(0, min(len(ordered), int(position)) - 1)]


def measured_fields(found: Measurement) -> dict[str, Any]:
    """Return rates and percentiles. Times are in milliseconds, 1 MB is 1,000,000 bytes."""

    def milliseconds(value: float | None) -> float | None:
        return None if value is None else round(value * 1000, 3)

    def per_second(count: float) -> float | None:
        return round(count / found.seconds, 3) if found.seconds else None

    return {
        "records": found.records,
        "bytes": found.size,
        "seconds": round(found.seconds, 6),
        "records_per_second": per_second(found.records),
        "mb_per_second": per_second(found.size / 1e6),
        "p50_ms": milliseconds(percentile(found.times_s, 0.5)),
        "p99_ms": milliseconds(percentile(found.times_s, 0.99)),
    }
