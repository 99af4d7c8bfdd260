"""Decisions of compaction, tested as pure functions."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.batch.compression import Compression
from barnabas.batch.header import BatchHeader, crc_is_valid, stamp
from barnabas.batch.markers import Marker, build_marker
from barnabas.batch.records import Record, TimestampType, build_batch, records
from barnabas.config.topic import TopicConfig
from barnabas.storage.compaction import (
    CleanableRange,
    LogFacts,
    SegmentFacts,
    find_cleanable,
    group_segments,
)
from barnabas.storage.compaction_batches import Survival, clean_batch, find_keys, fingerprint
from barnabas.storage.compaction_transactions import AbortedRanges, CleanedTransactions
from barnabas.storage.transaction_index import AbortedEntry
from barnabas.world.ports import Buffer
from tests.unit.storage.builders import NOW_MS, settings

COMPACT = settings(cleanup_policy=("compact",))
DAY_MS = 86_400_000


def log_of(*sizes: int, **changes: Any) -> LogFacts:
    """Closed segments of these sizes, ten offsets each, followed by an active one."""
    end = 10 * len(sizes)
    defaults: dict[str, Any] = {
        "closed": [SegmentFacts(10 * at, size) for at, size in enumerate(sizes)],
        "active_base": end,
        "log_start_offset": 0,
        "log_end_offset": end + 5,
        "stable_offset": end + 5,
    }
    return LogFacts(**{**defaults, **changes})


def test_new_log_is_dirty_up_to_active_segment() -> None:
    found = find_cleanable(log_of(100, 100), COMPACT, NOW_MS)
    assert (found.first_dirty, found.first_uncleanable) == (0, 20)
    assert (found.clean_bytes, found.dirty_bytes, found.dirty_ratio) == (0, 200, 1.0)


def test_cleaned_part_counts_as_clean() -> None:
    found = find_cleanable(log_of(300, 100, cleaned_to=10), COMPACT, NOW_MS)
    assert (found.first_dirty, found.dirty_ratio) == (10, 0.25)
    assert not found.is_worth_it(COMPACT)
    assert found.is_worth_it(settings(min_cleanable_dirty_ratio=0.2))


@pytest.mark.parametrize(("cleaned_to", "log_start_offset"), [(5, 10), (99, 0)])
def test_checkpoint_outside_the_log_is_ignored(cleaned_to: int, log_start_offset: int) -> None:
    log = log_of(100, 100, cleaned_to=cleaned_to, log_start_offset=log_start_offset)
    assert find_cleanable(log, COMPACT, NOW_MS).first_dirty == log_start_offset


@pytest.mark.parametrize(
    ("stable", "first_uncleanable"), [(0, 0), (9, 0), (10, 10), (15, 10), (20, 20), (25, 20)]
)
def test_cleaning_ends_at_high_watermark_and_segment_boundary(
    stable: int, first_uncleanable: int
) -> None:
    found = find_cleanable(log_of(100, 100, stable_offset=stable), COMPACT, NOW_MS)
    assert found.first_uncleanable == first_uncleanable
    assert found.dirty_bytes == 10 * first_uncleanable


def test_log_cleaned_to_active_segment_is_not_dirty() -> None:
    found = find_cleanable(log_of(100, 100, cleaned_to=20), COMPACT, NOW_MS)
    assert (found.dirty_bytes, found.dirty_ratio) == (0, 0.0)
    assert not found.is_worth_it(settings(min_cleanable_dirty_ratio=0.0))


def test_young_segment_and_all_after_it_wait() -> None:
    ages = (5000, 500, 5000)
    closed = [SegmentFacts(10 * n, 100, 0, -1, NOW_MS - age) for n, age in enumerate(ages)]
    found = find_cleanable(
        log_of(1, 1, 1, closed=closed), settings(min_compaction_lag_ms=1000), NOW_MS
    )
    assert (found.first_uncleanable, found.dirty_bytes) == (10, 100)


def test_overdue_record_makes_log_cleanable() -> None:
    closed = [SegmentFacts(0, 900), SegmentFacts(10, 100, 0, NOW_MS - 2000, NOW_MS)]
    log = log_of(1, 1, closed=closed, cleaned_to=10)
    assert find_cleanable(log, settings(max_compaction_lag_ms=1000), NOW_MS).is_worth_it(COMPACT)
    assert not find_cleanable(log, settings(max_compaction_lag_ms=3000), NOW_MS).is_worth_it(
        COMPACT
    )


def test_empty_range_has_ratio_zero() -> None:
    nothing = CleanableRange(
        first_dirty=0, first_uncleanable=0, clean_bytes=0, dirty_bytes=0, is_overdue=True
    )
    assert (nothing.dirty_ratio, nothing.is_worth_it(COMPACT)) == (0.0, False)


def bases(found: list[list[SegmentFacts]]) -> list[list[int]]:
    return [[each.base_offset for each in group] for group in found]


def test_neighbouring_segments_are_grouped_while_they_fit() -> None:
    segments = [SegmentFacts(10 * at, size) for at, size in enumerate((40, 60, 1, 99, 100, 0, 0))]
    config = settings(segment_bytes=100)
    assert bases(group_segments(segments, config, 70)) == [[0, 10], [20, 30], [40, 50, 60]]


def test_group_indexes_must_fit() -> None:
    segments = [SegmentFacts(at, 1, 40) for at in range(4)]
    config = settings(segment_index_bytes=100)
    assert bases(group_segments(segments, config, 4)) == [[0, 1], [2, 3]]


def test_group_offsets_must_fit_32_bits() -> None:
    segments = [SegmentFacts(0, 1), SegmentFacts(2**31 - 10, 1), SegmentFacts(2**31 + 10, 1)]
    assert bases(group_segments(segments, TopicConfig(), 2**31 + 20)) == [
        [0],
        [2**31 - 10, 2**31 + 10],
    ]


# ---- records


def survival(latest: dict[bytes, int] | None = None, **changes: Any) -> Survival:
    defaults: dict[str, Any] = {
        "latest": {fingerprint(key): offset for key, offset in (latest or {}).items()},
        "mapped_to": 1000,
        "now_ms": NOW_MS,
        "delete_retention_ms": DAY_MS,
        "last_offset_of": {},
        "epoch_of": {},
    }
    return Survival(**{**defaults, **changes})


def batch_of(*rows: tuple[bytes | None, bytes | None], **fields: Any) -> memoryview:
    found = [
        Record(100 + at, NOW_MS - 50 + at, key, value, (("h", b"%d" % at),))
        for at, (key, value) in enumerate(rows)
    ]
    return memoryview(build_batch(found, base_offset=100, partition_leader_epoch=3, **fields))


def clean(batch: memoryview, rules: Survival, *aborted: AbortedEntry) -> Buffer | None:
    """Clean a batch as the first one of its log."""
    transactions = CleanedTransactions(AbortedRanges(aborted))
    return clean_batch(batch, BatchHeader(batch), rules, transactions)


def clean_checked(batch: memoryview, rules: Survival) -> memoryview:
    cleaned_batch = clean(batch, rules)
    assert cleaned_batch is not None
    view = memoryview(cleaned_batch)
    assert crc_is_valid(view, 0, BatchHeader(view))
    return view


@pytest.mark.parametrize("codec", Compression)
def test_cleaned_batch_keeps_header_and_surviving_records(
    codec: Compression,
) -> None:
    fields: dict[str, Any] = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 70}
    rows = ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"))
    batch = batch_of(*rows, compression=codec, **fields)
    view = clean_checked(batch, survival({b"a": 102, b"c": 500}))
    before, after = BatchHeader(batch), BatchHeader(view)
    assert after.count == 2
    assert after.max_timestamp == NOW_MS - 48
    same = ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence")
    for name in (*same, "partition_leader_epoch", "compression", "attributes"):
        assert getattr(after, name) == getattr(before, name), name
    everything = list(records(batch))
    assert list(records(view)) == [everything[1], everything[2]]


def test_batch_without_losses_is_unchanged() -> None:
    batch = batch_of((b"a", b"1"), (b"b", b"2"))
    assert clean_checked(batch, survival({b"a": 100})) == batch


def test_records_without_key_are_removed_only_in_mapped_range() -> None:
    batch = batch_of((None, b"1"), (b"b", b"2"), (None, b"3"))
    view = clean_checked(batch, survival({b"b": 900}, mapped_to=102))
    assert [record.offset for record in records(view)] == [102]
    unmapped = batch_of((None, b"1"), (b"b", None))
    assert clean_checked(unmapped, survival(mapped_to=100)) == unmapped


def test_first_cleaning_of_tombstone_sets_delete_horizon() -> None:
    batch = batch_of((b"a", b"1"), (b"b", None), (b"a", b"2"))
    view = clean_checked(batch, survival({b"a": 102}))
    header = BatchHeader(view)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + DAY_MS
    assert list(records(view)) == list(records(batch))[1:], "timestamps are unchanged"
    # The horizon is not set again; it counts from the first cleaning.
    later = survival({b"a": 102}, now_ms=NOW_MS + DAY_MS - 1)
    assert clean_checked(view, later) == view
    gone = clean_checked(view, survival({b"a": 102}, now_ms=NOW_MS + DAY_MS))
    assert [record.offset for record in records(gone)] == [102]
    assert next(iter(records(gone))).timestamp == NOW_MS - 48


@pytest.mark.parametrize("kind", TimestampType)
def test_timestamps_survive_delete_horizon(kind: TimestampType) -> None:
    batch = batch_of((b"a", None), (b"a", b"2"), (b"c", None), timestamp_type=kind)
    view = clean_checked(batch, survival({b"a": 101}))
    assert list(records(view)) == list(records(batch))[1:]
    assert BatchHeader(view).max_timestamp == BatchHeader(batch).max_timestamp


def test_empty_batch_is_kept_for_last_sequence_of_producer() -> None:
    fields: dict[str, Any] = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 70}
    batch = batch_of((b"a", b"1"), (b"a", b"2"), compression=Compression.ZSTD, **fields)
    rules = survival({b"a": 200}, last_offset_of={9: 200})
    assert clean(batch, rules) is None
    view = clean_checked(batch, survival({b"a": 200}, last_offset_of={9: 101}))
    header = BatchHeader(view)
    assert (header.size, header.count, header.compression) == (61, 0, 0)
    assert (header.base_offset, header.last_offset, header.base_sequence) == (100, 101, 70)
    assert header.max_timestamp == NOW_MS - 49
    assert list(records(view)) == []
    assert clean(view, rules) is None, "the empty batch is removed after a later one"


def test_batch_of_aborted_transaction_is_removed() -> None:
    fields: dict[str, Any] = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 70}
    batch = batch_of((b"a", b"1"), (b"b", b"2"), is_transactional=True, **fields)
    aborted = AbortedEntry(9, first_offset=90, last_offset=200, last_stable_offset=201)
    assert clean_checked(batch, survival()) == batch, "committed"
    assert clean(batch, survival(), aborted) is None
    assert clean(batch, survival(mapped_to=0), aborted) is None
    for other in (
        aborted._replace(producer_id=8),
        aborted._replace(first_offset=102),
        aborted._replace(last_offset=99),
    ):
        assert clean(batch, survival(), other) == batch
    stripped = clean(batch, survival(last_offset_of={9: 101}), aborted)
    assert stripped is not None
    header = BatchHeader(stripped)
    assert (header.count, header.last_offset, header.is_transactional) == (0, 101, True)


def marker_at(offset: int, *, commit: bool) -> memoryview:
    data = build_marker(
        producer_id=9, producer_epoch=2, marker=Marker(commit, 5), timestamp=NOW_MS - 1
    )
    stamp(data, 0, offset, BatchHeader(data).length, 3)
    return memoryview(data)


@pytest.mark.parametrize("commit", [True, False])
def test_marker_is_kept_while_its_transaction_has_batches(commit: bool) -> None:
    fields: dict[str, Any] = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 70}
    batch = batch_of((b"a", b"1"), is_transactional=True, **fields)
    marker = marker_at(101, commit=commit)
    entry = AbortedEntry(9, first_offset=100, last_offset=101, last_stable_offset=102)
    transactions = CleanedTransactions(AbortedRanges([] if commit else [entry]))
    rules = survival({b"a": 500})
    assert clean_batch(batch, BatchHeader(batch), rules, transactions) is None
    assert clean_batch(marker, BatchHeader(marker), rules, transactions) is marker
    assert transactions.take_kept() == ([] if commit else [entry])


@pytest.mark.parametrize("commit", [True, False])
def test_marker_of_empty_transaction_gets_delete_horizon(commit: bool) -> None:
    marker = marker_at(101, commit=commit)
    view = clean_checked(marker, survival())
    header = BatchHeader(view)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + DAY_MS
    assert list(records(view)) == list(records(marker))
    assert clean(view, survival(now_ms=NOW_MS + DAY_MS - 1)) == view
    after = NOW_MS + DAY_MS
    assert clean(view, survival(now_ms=after)) is None
    assert clean(view, survival(now_ms=after, epoch_of={9: 3})) is None
    kept = clean_checked(view, survival(now_ms=after, epoch_of={9: 2}))
    assert (BatchHeader(kept).count, BatchHeader(kept).producer_epoch) == (0, 2)
    assert clean_checked(kept, survival(epoch_of={9: 2})) == kept
    assert clean(kept, survival(epoch_of={9: 3})) is None


def test_corrupt_batch_is_unchanged() -> None:
    whole = build_batch([Record(0, NOW_MS, b"key", b"value")])
    broken = bytearray(whole)
    broken[60] = 200  # more records than the batch has
    assert is_unchanged(memoryview(broken))
    broken = bytearray(whole)
    broken[22] |= Compression.ZSTD
    assert is_unchanged(memoryview(broken))


def is_unchanged(batch: memoryview) -> bool:
    header = BatchHeader(batch)
    return clean(batch, survival({b"key": 500})) == batch and not list(find_keys(batch, header))


def test_long_keys_are_hashed() -> None:
    long = [b"x" * 200 + b"%d" % at for at in range(50)]
    assert len({fingerprint(key) for key in long}) == 50
    assert {len(fingerprint(key)) for key in long} == {16}
    assert fingerprint(b"short") == b"short"
