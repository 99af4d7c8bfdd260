"""Summary of the records that one Spark task reads: counts, sizes, offsets and timestamps of each topic partition.

Spark passes Arrow batches with the columns of SUMMARY_INPUT, and gets one row per topic partition. The records of a
partition must arrive in offset order within a task, as the source yields them.

Value sizes are counted in slots. Up to 1,023 bytes each size has its own slot. Above, a slot spans at most 0.2 % of the
size, so the number of slots stays below 12,000 for any topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct, field, to_builtins

SUMMARY_INPUT = (
    "partition",
    "offset",
    "unix_millis(timestamp) as ms",
    "length(key) as key_bytes",
    "length(value) as value_bytes",
)
"""Spark expressions for the input. A missing key or value has no length: null."""

Integers = np.ndarray[Any, np.dtype[np.int64]]

SLOT_BITS = 10
HALF = 1 << (SLOT_BITS - 1)


class RangeSummary(Struct, kw_only=True):
    """Figures of consecutive records of one topic partition.

    Timestamps below 0 mean that a record has none. They count in `untimed` and nowhere else.
    """

    partition: int
    records: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    keyless: int = 0
    tombstones: int = 0
    first_offset: int
    last_offset: int
    gaps: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    untimed: int = 0
    older: int = 0
    """Records with an earlier timestamp than their predecessor."""
    step_back_ms: int = 0
    """The largest difference between such a record and its predecessor."""
    value_bytes_min: int | None = None
    value_bytes_max: int | None = None
    buckets: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Number of the time bucket → records, bytes."""
    size_slots: dict[int, int] = field(default_factory=dict)
    """Slot of the value size → records. Tombstones are not counted."""


SUMMARY_SCHEMA = pa.schema(
    [
        *((name, pa.int64()) for name in RangeSummary.__struct_fields__[:-2]),
        ("buckets", pa.map_(pa.int64(), pa.list_(pa.int64()))),
        ("size_slots", pa.map_(pa.int64(), pa.int64())),
    ]
)


def summarize_task(batches: Iterable[pa.RecordBatch], bucket_ms: int) -> Iterator[pa.RecordBatch]:
    """Yield one batch with a row per topic partition. Spark calls this in every task."""
    found: dict[int, RangeSummary] = {}
    for batch in batches:
        add_batch(found, batch, bucket_ms)
    rows = [to_builtins(summary, str_keys=False) for summary in found.values()]
    yield pa.RecordBatch.from_pylist(rows, schema=SUMMARY_SCHEMA)


def add_batch(found: dict[int, RangeSummary], batch: pa.RecordBatch, bucket_ms: int) -> None:
    numbers = batch.column("partition").to_numpy()
    for number in np.unique(numbers).tolist():
        mask = numbers == number
        rows = batch if mask.all() else batch.filter(pa.array(mask))
        offsets = rows.column("offset").to_numpy()
        if number not in found:
            # The offset before the first one, so that there is no gap before the range.
            first = int(offsets[0])
            found[number] = RangeSummary(
                partition=number, first_offset=first, last_offset=first - 1
            )
        add_records(found[number], rows, offsets, bucket_ms)


def add_records(
    summary: RangeSummary, rows: pa.RecordBatch, offsets: Integers, bucket_ms: int
) -> None:
    keys, values = rows.column("key_bytes"), rows.column("value_bytes")
    sizes = values.drop_null().to_numpy()
    summary.records += len(offsets)
    summary.keyless += keys.null_count
    summary.tombstones += values.null_count
    summary.key_bytes += int(keys.drop_null().to_numpy().sum())
    summary.value_bytes += int(sizes.sum())
    before = np.concatenate(([summary.last_offset], offsets[:-1]))
    summary.gaps += int((offsets - before > 1).sum())
    summary.last_offset = int(offsets[-1])
    add_sizes(summary, sizes)
    total_bytes = keys.fill_null(0).to_numpy() + values.fill_null(0).to_numpy().astype(np.int64)
    add_times(summary, rows.column("ms").to_numpy(), total_bytes, bucket_ms)


def add_sizes(summary: RangeSummary, sizes: Integers) -> None:
    if len(sizes) == 0:
        return
    least, most = int(sizes.min()), int(sizes.max())
    known_least, known_most = summary.value_bytes_min, summary.value_bytes_max
    summary.value_bytes_min = least if known_least is None else min(least, known_least)
    summary.value_bytes_max = most if known_most is None else max(most, known_most)
    counts = np.bincount(size_slots(sizes))
    for slot in np.flatnonzero(counts).tolist():
        summary.size_slots[slot] = summary.size_slots.get(slot, 0) + int(counts[slot])


def add_times(summary: RangeSummary, ms: Integers, sizes: Integers, bucket_ms: int) -> None:
    """Count the records and bytes of each time bucket, and the steps back in time."""
    timed = ms >= 0
    summary.untimed += int((~timed).sum())
    ms, sizes = ms[timed], sizes[timed]
    if len(ms) == 0:
        return
    if summary.first_ms is None or summary.last_ms is None:
        summary.first_ms = summary.last_ms = int(ms[0])
    steps = ms - np.concatenate(([summary.last_ms], ms[:-1]))
    summary.older += int((steps < 0).sum())
    summary.step_back_ms = max(summary.step_back_ms, -int(steps.min()))
    summary.last_ms = int(ms[-1])
    buckets, places = np.unique(ms // bucket_ms, return_inverse=True)
    records = np.bincount(places)
    volumes = np.bincount(places, weights=sizes)
    for bucket, count, volume in zip(buckets.tolist(), records, volumes, strict=True):
        known = summary.buckets.get(bucket, (0, 0))
        summary.buckets[bucket] = known[0] + int(count), known[1] + int(volume)


def size_slots(sizes: Integers) -> Integers:
    """Return the slot of each size.

    >>> size_slots(np.array([0, 7, 1023, 1024, 1025, 1026, 1_000_000])).tolist()
    [0, 7, 1023, 1024, 1024, 1025, 6096]
    """
    _, bits = np.frexp(sizes)
    shifts = np.maximum(bits - SLOT_BITS, 0)
    slots: Integers = HALF * shifts + (sizes.astype(np.int64) >> shifts)
    return slots


def slot_size(slot: int) -> int:
    """Return the smallest size in a slot.

    >>> [slot_size(slot) for slot in (0, 7, 1023, 1024, 1025, 6096)]
    [0, 7, 1023, 1024, 1026, 999424]
    """
    shift = max(0, slot // HALF - 1)
    return (slot - HALF * shift) << shift
