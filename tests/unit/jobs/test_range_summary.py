"""Summaries of Arrow batches, compared with figures computed one record at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from barnabas.jobs.range_summary import (
    RangeSummary,
    add_batch,
    size_slots,
    slot_size,
    summarize_task,
)

Rows = list[tuple[int, int, int, int | None, int | None]]
TYPES = {
    "partition": pa.int32(),
    "offset": pa.int64(),
    "ms": pa.int64(),
    "key_bytes": pa.int32(),
    "value_bytes": pa.int32(),
}


def batch_of(rows: Rows) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(TYPES)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, TYPES.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(TYPES))


def summaries_of(*batches: Rows, bucket_ms: int = 1000) -> dict[int, RangeSummary]:
    found: dict[int, RangeSummary] = {}
    for rows in batches:
        add_batch(found, batch_of(rows), bucket_ms)
    return found


def test_summary_has_exact_figures() -> None:
    rows: Rows = [
        (3, 10, 1000, 4, 100),
        (3, 11, 1500, None, 90),
        (3, 13, 1400, 4, None),  # a gap, a tombstone, older than its predecessor
        (3, 14, 2500, 4, 2000),
    ]
    (summary,) = summaries_of(rows).values()
    assert summary == RangeSummary(
        partition=3,
        records=4,
        key_bytes=12,
        value_bytes=2190,
        keyless=1,
        tombstones=1,
        first_offset=10,
        last_offset=14,
        gaps=1,
        first_ms=1000,
        last_ms=2500,
        older=1,
        step_back_ms=100,
        value_bytes_min=90,
        value_bytes_max=2000,
        buckets={1: (3, 198), 2: (1, 2004)},
        size_slots={90: 1, 100: 1, int(size_slots(np.array([2000]))[0]): 1},
    )


def test_batch_boundaries_do_not_matter() -> None:
    rows: Rows = [
        (number % 2, number * 3, 5000 - 7 * (number % 5), number % 4 or None, number)
        for number in range(40)
    ]
    whole = summaries_of(rows)
    assert summaries_of(rows[:1], rows[1:17], rows[17:18], rows[18:]) == whole
    assert [whole[partition].records for partition in (0, 1)] == [20, 20]
    assert whole[0].gaps == 19


def test_records_without_timestamp_count_nowhere_else() -> None:
    (summary,) = summaries_of([(0, 0, 5000, 1, 1), (0, 1, -1, 1, 1), (0, 2, 6000, 1, 1)]).values()
    assert (summary.untimed, summary.older, summary.first_ms, summary.last_ms) == (1, 0, 5000, 6000)
    assert summary.buckets == {5: (1, 2), 6: (1, 2)}
    (summary,) = summaries_of([(0, 0, -1, 1, 1)]).values()
    assert (summary.first_ms, summary.buckets) == (None, {})


def test_task_yields_one_row_per_partition() -> None:
    rows: Rows = [(0, 0, 1000, None, 5), (1, 7, 1000, 2, None)]
    (batch,) = summarize_task([batch_of(rows), batch_of([(0, 1, 1000, None, 5)])], bucket_ms=1000)
    found = [
        convert(
            row | {name: dict(row[name]) for name in ("buckets", "size_slots")},
            RangeSummary,
            strict=False,
        )
        for row in batch.to_pylist()
    ]
    assert found == list(summaries_of(rows, [(0, 1, 1000, None, 5)]).values())
    (empty,) = summarize_task([], bucket_ms=1000)
    assert empty.num_rows == 0


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1))
def test_slots_keep_order_and_precision(sizes: list[int]) -> None:
    slots = size_slots(np.array(sorted(sizes), dtype=np.int32)).tolist()
    assert slots == sorted(slots)
    assert max(slots) < 12_000
    for size, slot in zip(sorted(sizes), slots, strict=True):
        assert slot_size(slot) <= size
        assert size - slot_size(slot) <= size * 0.002
        if size < 1024:
            assert slot == slot_size(slot) == size


@pytest.mark.parametrize("size", [1023, 1024, 2047, 2048, 10**6, 2**31 - 1])
def test_slot_of_smallest_size_is_the_slot(size: int) -> None:
    slot = int(size_slots(np.array([size]))[0])
    assert int(size_slots(np.array([slot_size(slot)]))[0]) == slot
