from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.batch.header import BatchHeader
from barnabas.batch.records import records
from barnabas.errors import ApiError, CorruptBatch, ErrorCode, OutOfSpace, StorageError
from barnabas.storage.segment import Segment
from barnabas.storage.segment_starts import list_segment_starts
from barnabas.world.ports import FileSlice
from simulator.disk import ForgetfulDisk
from tests.unit.storage.builders import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    contents,
    flush,
    forgetful_disk,
    new_log,
    produce,
    reopen,
    settings,
)


@pytest.fixture
def disk() -> ForgetfulDisk:
    return forgetful_disk()


def assert_rejected(code: ErrorCode, act: object, *arguments: object, **named: object) -> None:
    assert callable(act)
    with pytest.raises(ApiError) as caught:
        act(*arguments, **named)
    assert caught.value.code == code


# ---- append


def test_append_assigns_offsets_and_leader_epoch(disk: ForgetfulDisk) -> None:
    log = new_log(disk)
    assert append(log, b"a", b"b", epoch=3)[:2] == (0, 1)
    assert append(log, b"c", epoch=3)[:2] == (2, 2)
    assert log.log_end_offset == 3
    slice_ = log.read(2, 1000, 3).slices[0]
    header = BatchHeader(slice_.file.read(slice_.position, slice_.size))
    assert (header.base_offset, header.partition_leader_epoch) == (2, 3)
    assert contents(log) == {0: b"a", 1: b"b", 2: b"c"}
    assert log.epochs.entries == [(3, 0)]


def test_batch_above_size_limits_is_rejected(disk: ForgetfulDisk) -> None:
    log = new_log(disk, settings(max_message_bytes=500))
    assert_rejected(ErrorCode.MESSAGE_TOO_LARGE, append, log, b"x" * 500)
    log.use_config(settings(segment_bytes=500))
    assert_rejected(ErrorCode.RECORD_LIST_TOO_LARGE, append, log, b"x" * 500)
    assert log.log_end_offset == 0
    assert log.size_bytes == 0


def test_timestamps_out_of_bounds_are_rejected(disk: ForgetfulDisk) -> None:
    bounds = settings(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=2000)
    log = new_log(disk, bounds)
    assert_rejected(ErrorCode.INVALID_TIMESTAMP, append, log, b"late", timestamps=[NOW_MS + 2001])
    assert_rejected(ErrorCode.INVALID_TIMESTAMP, append, log, b"old", timestamps=[NOW_MS - 1001])
    both = [NOW_MS, NOW_MS - 1001]
    assert_rejected(ErrorCode.INVALID_TIMESTAMP, append, log, b"a", b"b", timestamps=both)
    append(log, b"a", b"b", timestamps=[NOW_MS - 1000, NOW_MS + 2000])
    append(log, b"none", timestamps=[-1])
    assert log.log_end_offset == 3


def test_log_append_time_replaces_producer_time(disk: ForgetfulDisk) -> None:
    log = new_log(disk, settings(message_timestamp_type="LogAppendTime"))
    info = append(log, b"a", timestamps=[5], now_ms=NOW_MS + 1)
    assert info.log_append_time == NOW_MS + 1
    (slice_,) = log.read(0, 1000, 1).slices
    data = memoryview(slice_.file.read(slice_.position, slice_.size))
    assert [record.timestamp for record in records(data)] == [NOW_MS + 1]
    assert reopen(log).log_end_offset == 1, "the checksum is valid"


def test_compacted_topic_rejects_record_without_key(disk: ForgetfulDisk) -> None:
    log = new_log(disk, settings(cleanup_policy=("compact",)))
    assert_rejected(ErrorCode.INVALID_RECORD, append, log, b"a", key=None)
    append(log, b"a")


def test_log_works_again_after_full_disk() -> None:
    disk = forgetful_disk()
    log = new_log(disk, settings(segment_bytes=1000))
    written = {}
    disk.capacity_bytes = 3000
    for at in range(100):
        try:
            written[append(log, b"%d" % at * 50).first_offset] = b"%d" % at * 50
        except OutOfSpace:
            assert contents(log) == written
    assert 0 < len(written) < 100
    disk.capacity_bytes = None
    written[append(log, b"after").first_offset] = b"after"
    assert contents(log) == written
    assert contents(reopen(log)) == written


# ---- read


def test_read_ends_at_bound_and_size_with_one_whole_batch(
    disk: ForgetfulDisk,
) -> None:
    log = new_log(disk)
    for value in (b"a" * 100, b"b" * 100, b"c" * 100):
        append(log, value)
    size = log.size_bytes // 3
    assert log.read(0, 10_000, 2).size == 2 * size
    assert log.read(1, 10_000, 2).slices == (FileSlice(log.segments.active.log, size, size),)
    assert log.read(0, 1, 3, at_least_one=True).size == size
    partial = log.read(0, 1, 3, at_least_one=False)
    assert (partial.size, partial.first_incomplete) == (1, True)
    assert log.read(0, size + 1, 3).size == size + 1
    assert log.read(2, 100, 2).slices == ()
    assert log.read(3, 100, 3).slices == ()


def test_offset_outside_the_log_is_out_of_range(disk: ForgetfulDisk) -> None:
    log = new_log(disk)
    append(log, b"a", b"b", b"c")
    log.high_watermark = 3
    log.advance_log_start(1)
    assert_rejected(ErrorCode.OFFSET_OUT_OF_RANGE, log.read, 0, 100, 3)
    assert_rejected(ErrorCode.OFFSET_OUT_OF_RANGE, log.read, 4, 100, 3)
    assert contents(log) == {1: b"b", 2: b"c"}


def test_every_offset_is_found_with_and_without_tail(disk: ForgetfulDisk) -> None:
    log = new_log(disk, settings(segment_bytes=3000, index_interval_bytes=200))
    expected: dict[int, bytes | None] = {}
    for at in range(300):
        values = [b"%d/%d" % (at, n) for n in range(at % 3 + 1)]
        first = append(log, *values).first_offset
        expected.update({first + n: value for n, value in enumerate(values)})
    assert len(log.segments) > 5
    for start in range(0, log.log_end_offset, 7):
        assert contents(log, start) == {o: v for o, v in expected.items() if o >= start}
    log.segments.tail.clear()
    for bound in range(1, log.log_end_offset, 11):
        found = contents(log, 0, bound)
        assert set(found) <= set(range(bound))
        assert len(found) >= bound - 2, "all but a batch that crosses the bound"


def test_reading_the_tail_does_not_touch_the_disk(disk: ForgetfulDisk) -> None:
    log = new_log(disk)
    for at in range(500):
        append(log, b"%d" % at)
        disk.fails = "/data"
        assert log.read(at, 1000, at + 1).size > 0
        if at:
            assert log.read(at - 1, 1000, at).size > 0, "the high watermark may be lower"
        disk.fails = None


# ---- roll


def test_segment_rolls_by_size_age_and_full_index(disk: ForgetfulDisk) -> None:
    log = new_log(disk, settings(segment_bytes=1000))
    for _ in range(30):
        append(log, b"x" * 100)
    assert len(log.segments) == 6
    assert all(segment.size <= 1000 for segment in log.segments)

    log = new_log(disk, settings(segment_ms=1000), "/data/by-age-0")
    append(log, b"a", timestamps=[5000])
    append(log, b"b", timestamps=[6000])
    assert len(log.segments) == 1
    append(log, b"c", timestamps=[6001])
    assert log.segments.bases == [0, 2]

    log = new_log(disk, settings(segment_ms=1000), "/data/by-clock-0")
    append(log, b"a", timestamps=[-1])
    append(log, b"b", timestamps=[-1], now_ms=NOW_MS + 1001)
    assert log.segments.bases == [0, 1]

    tiny = settings(segment_index_bytes=48, index_interval_bytes=0)
    log = new_log(disk, tiny, "/data/by-index-0")
    for _ in range(10):
        append(log, b"a")
    assert len(log.segments) > 1


def test_offset_too_far_from_base_rolls_a_segment(disk: ForgetfulDisk) -> None:
    log = new_log(disk)
    log.append_as_follower(batch([b"a"], base_offset=0))
    far = 2**31 + 5
    log.append_as_follower(memoryview(bytes(far.to_bytes(8, "big")) + bytes(batch([b"b"])[8:])))
    assert log.segments.bases == [0, far]
    assert contents(log) == {0: b"a", far: b"b"}, "the gap is skipped"


def test_bound_in_a_gap_hides_later_batches(disk: ForgetfulDisk) -> None:
    """Offsets 0 and 60 to 61 in two segments, with a gap between them."""
    log = new_log(disk)
    log.append_as_follower(batch([b"a"]))
    log.roll(NOW_MS, base_offset=50)
    data = batch([b"b", b"c"])
    log.append_as_follower(memoryview((60).to_bytes(8, "big") + bytes(data[8:])))
    assert log.read(1, 1000, 55).size == 0
    assert log.read(1, 1000, 61).size == 0, "the bound is inside the batch"
    assert contents(log, 0, 55) == {0: b"a"}
    assert contents(log, 1) == {60: b"b", 61: b"c"}
    log.segments.tail.clear()
    assert log.read(1, 1000, 30).size == 0
    assert log.read(0, 1000, 30).size == log.segments[0].size
    assert log.read(1, 1000, 55).size == 0
    assert contents(log, 1) == {60: b"b", 61: b"c"}


def test_read_in_a_gap_returns_next_batch(disk: ForgetfulDisk) -> None:
    log = new_log(disk)
    log.append_as_follower(batch([b"a"]))
    data = batch([b"b", b"c"])
    log.append_as_follower(memoryview((60).to_bytes(8, "big") + bytes(data[8:])))
    (slice_,) = log.read(1, 1, 62, at_least_one=True).slices
    assert BatchHeader(slice_.file.read(slice_.position, slice_.size)).base_offset == 60


# ---- follower


def join_batches(*logs_batches: bytes) -> memoryview:
    return memoryview(b"".join(logs_batches))


def test_follower_log_equals_leader_log(disk: ForgetfulDisk) -> None:
    leader = new_log(disk, settings(segment_bytes=2000))
    follower = new_log(disk, settings(segment_bytes=900), "/data/copy-0")
    for at in range(60):
        produce(leader, at, b"%d" % at * 20)
        if at == 30:
            leader.assign_epoch(4, leader.log_end_offset)
    while follower.log_end_offset < leader.log_end_offset:
        (part,) = leader.read(follower.log_end_offset, 1500, leader.log_end_offset).slices
        taken = follower.append_as_follower(memoryview(part.file.read(part.position, part.size)))
        assert taken.last_offset == follower.log_end_offset - 1
    assert contents(follower) == contents(leader)
    assert all_bytes(follower.segments) == all_bytes(leader.segments)
    assert follower.producers.encode() == leader.producers.encode()
    assert follower.epochs.entries == leader.epochs.entries == [(0, 0), (4, 31)]


def all_bytes(segments: Sequence[Segment]) -> bytes:
    return b"".join(segment.log.read(0, segment.size) for segment in segments)


def test_follower_rejects_corrupt_bytes_and_old_offsets(disk: ForgetfulDisk) -> None:
    log = new_log(disk)
    good = bytes(batch([b"a", b"b"]))
    altered = bytearray(good)
    altered[-1] ^= 1
    assert_rejected(ErrorCode.CORRUPT_MESSAGE, log.append_as_follower, memoryview(altered))
    log.append_as_follower(memoryview(good))
    assert_rejected(ErrorCode.UNKNOWN_SERVER_ERROR, log.append_as_follower, memoryview(good))
    assert log.append_as_follower(memoryview(good)[:30]).size == 0, "a partial batch is ignored"
    assert log.log_end_offset == 2


def test_follower_may_start_inside_a_batch(disk: ForgetfulDisk) -> None:
    """The leader's log start is inside batch 0 to 2; an empty follower fetches from there and gets
    the whole batch.
    """
    log = new_log(disk)
    log.truncate_fully_and_start_at(2)
    log.append_as_follower(batch([b"a", b"b", b"c"]))
    assert (log.log_start_offset, log.log_end_offset) == (2, 3)
    assert contents(log) == {2: b"c"}


# ---- truncation


def test_truncation_removes_records_and_their_state(disk: ForgetfulDisk) -> None:
    log = new_log(disk, settings(segment_bytes=600, index_interval_bytes=100))
    for at in range(40):
        produce(log, at, b"%d" % at * 20, producer=at % 3) if at < 3 else append(
            log, b"%d" % at * 20, epoch=at // 10
        )
    log.high_watermark = 40
    before = contents(log)
    flush(log)
    recovery_points: list[int] = []
    log.on_truncated = lambda: recovery_points.append(log.recovery_point)
    assert log.truncate_to(25)
    assert contents(log) == {o: v for o, v in before.items() if o < 25}
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (25, 25, 25)
    assert recovery_points == [25]
    assert log.epochs.entries == [(0, 0), (1, 10), (2, 20)]
    assert append(log, b"new", epoch=7).first_offset == 25
    assert contents(reopen(log)) == contents(log)
    assert not log.truncate_to(99)
    assert log.truncate_to(0)
    assert contents(log) == {}
    assert not log.producers.by_id


def test_truncation_removes_whole_batches(disk: ForgetfulDisk) -> None:
    log = new_log(disk)
    append(log, b"a")
    append(log, b"b", b"c", b"d")
    log.truncate_to(2)
    assert log.log_end_offset == 1


def test_truncation_on_full_disk_forgets_removed_batch(disk: ForgetfulDisk) -> None:
    """Otherwise a retry would be acknowledged as a duplicate, and the record would be lost."""
    log = new_log(disk)
    produce(log, 0, b"a")
    log.begin_epoch(1)
    produce(log, 1, b"b")
    log.high_watermark = 2
    disk.capacity_bytes = 0
    with pytest.raises(OutOfSpace):
        log.truncate_to(1)
    assert (log.log_end_offset, log.high_watermark) == (1, 1)
    disk.capacity_bytes = None
    assert not produce(log, 1, b"b").is_duplicate
    assert contents(reopen(log)) == {0: b"a", 1: b"b"}
    assert reopen(log).epochs.entries == log.epochs.entries


def test_full_truncation_on_a_full_disk_forgets_the_producers(disk: ForgetfulDisk) -> None:
    log = new_log(disk)
    produce(log, 0, b"a")
    disk.capacity_bytes = 0
    with pytest.raises(OutOfSpace):
        log.truncate_fully_and_start_at(10)
    assert not log.producers.by_id
    disk.capacity_bytes = None
    log.truncate_fully_and_start_at(10)
    assert produce(log, 0, b"a").first_offset == 10


def test_follower_saves_epochs_after_truncation_on_full_disk(
    disk: ForgetfulDisk,
) -> None:
    log = new_log(disk)
    append(log, b"a")
    append(log, b"b", epoch=1)
    disk.capacity_bytes = 0
    with pytest.raises(OutOfSpace):
        log.truncate_to(1)
    disk.capacity_bytes = None
    log.append_as_follower(memoryview((1).to_bytes(8, "big") + bytes(batch([b"c"])[8:])))
    assert not log.epochs.unsaved
    assert reopen(log).epochs.entries == [(0, 0)]


def test_truncation_of_closed_segments_survives_power_loss(disk: ForgetfulDisk) -> None:
    log = new_log(disk, settings(segment_bytes=400))
    for at in range(20):
        append(log, b"old %d" % at * 10)
    flush(log)
    log.truncate_to(3)
    for at in range(10):
        append(log, b"new %d" % at * 10, epoch=1)
    flush(log)
    after = reopen(log, disk=disk.crash())
    assert contents(after) == contents(log)


def test_full_truncation_starts_over(disk: ForgetfulDisk) -> None:
    log = new_log(disk, settings(segment_bytes=400))
    for at in range(20):
        produce(log, at, b"x" * 50)
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (100, 100, 100)
    assert append(log, b"a").first_offset == 100
    assert contents(reopen(log)) == {100: b"a"}


def test_truncation_removes_timestamps(disk: ForgetfulDisk) -> None:
    log = new_log(disk, settings(index_interval_bytes=0))
    for at in range(10):
        append(log, b"x", timestamps=[1000 * at])
    log.truncate_to(5)
    found = log.offset_of_max_timestamp()
    assert found is not None
    assert found[:2] == (4000, 4)
    assert log.offset_for_timestamp(4001) is None


# ---- log start and retention


def test_delete_records_advances_start_up_to_high_watermark(
    disk: ForgetfulDisk,
) -> None:
    log = new_log(disk, settings(segment_bytes=400))
    for at in range(20):
        append(log, b"%d" % at * 50)
    log.high_watermark = 10
    assert_rejected(ErrorCode.OFFSET_OUT_OF_RANGE, log.advance_log_start, 11)
    assert log.advance_log_start(9)
    assert not log.advance_log_start(3)
    log.use_config(settings(segment_bytes=400, retention_ms=-1))
    whole = sum(1 for next_base in log.segments.bases[1:] if next_base <= 9)
    assert whole > 1
    assert log.delete_old_segments(NOW_MS) == whole
    assert min(contents(log)) == 9
    assert log.epochs.entries == [(0, 9)]


def test_retention_by_size_keeps_at_least_the_limit(disk: ForgetfulDisk) -> None:
    log = new_log(disk, settings(segment_bytes=400, retention_bytes=1000, retention_ms=-1))
    for _ in range(20):
        append(log, b"x" * 100)
    before = log.size_bytes
    assert log.delete_old_segments(NOW_MS) == 0, "the high watermark is 0"
    log.high_watermark = log.log_end_offset
    removed = log.delete_old_segments(NOW_MS)
    assert removed > 0
    assert 1000 <= log.size_bytes < 1000 + 400
    assert log.size_bytes == before - removed * (before // 10)
    assert log.log_start_offset == log.segments.bases[0]


def test_retention_by_time_may_delete_everything(
    disk: ForgetfulDisk,
) -> None:
    log = new_log(disk, settings(segment_bytes=400, retention_ms=1000, file_delete_delay_ms=50))
    for at in range(10):
        append(log, b"x" * 100, timestamps=[NOW_MS + at])
    log.high_watermark = 10
    assert log.delete_old_segments(NOW_MS + 1000) == 0
    assert log.delete_old_segments(NOW_MS + 1002) == 1, "only segments that are completely older"
    assert log.delete_old_segments(NOW_MS + 5000) == 4
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (10, 10, 0)
    assert log.delete_old_segments(NOW_MS + 9000) == 0, "an empty active segment stays"
    log.purge(NOW_MS + 1052)
    assert f"{0:020d}.log" not in disk.list(DIRECTORY)
    assert f"{2:020d}.log" in disk.list(DIRECTORY)
    log.purge(NOW_MS + 5050)
    assert [name for name in disk.list(DIRECTORY) if name.endswith(".log")] == [f"{10:020d}.log"]
    assert append(log, b"a").first_offset == 10
    assert contents(reopen(log)) == {10: b"a"}


def test_retention_frees_space_on_full_disk(disk: ForgetfulDisk) -> None:
    config = settings(segment_bytes=400, retention_ms=1000, file_delete_delay_ms=0)
    log = new_log(disk, config)
    for at in range(10):
        append(log, b"x" * 100, epoch=at)
    log.high_watermark = 10
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(OutOfSpace):
        append(log, b"x" * 100)
    assert log.delete_old_segments(NOW_MS + 5000) > 2
    log.purge(NOW_MS + 5000)
    assert append(log, b"x" * 100, epoch=9, now_ms=NOW_MS + 5000).first_offset == 10


def test_retention_without_timestamps_uses_file_time() -> None:
    now = NOW_MS
    disk = forgetful_disk(lambda: now)
    log = new_log(disk, settings(retention_ms=1000))
    append(log, b"a", timestamps=[-1])
    log.high_watermark = 1
    assert log.delete_old_segments(NOW_MS + 1000) == 0
    assert log.delete_old_segments(NOW_MS + 1001) == 1


def test_compacted_topic_keeps_old_segments(disk: ForgetfulDisk) -> None:
    log = new_log(disk, settings(segment_bytes=400, retention_ms=1, cleanup_policy=("compact",)))
    for _ in range(10):
        append(log, b"x" * 100)
    log.high_watermark = 10
    assert log.delete_old_segments(NOW_MS + 10_000) == 0


# ---- timestamps


def test_first_record_at_or_after_a_time_is_found(disk: ForgetfulDisk) -> None:
    log = new_log(disk, settings(segment_bytes=700, index_interval_bytes=100))
    times = {}
    for at in range(60):
        pair = [1000 + 10 * at, 1000 + 10 * at + (7 if at % 2 else -5)]
        first = append(log, b"x" * 30, b"y" * 30, timestamps=pair, epoch=at // 20).first_offset
        times.update({first: pair[0], first + 1: pair[1]})
    for timestamp in range(980, 1700, 3):
        expected = next((o for o, t in sorted(times.items()) if t >= timestamp), None)
        found = log.offset_for_timestamp(timestamp)
        assert (found.offset if found else None) == expected
        if found:
            assert found.timestamp == times[found.offset]
            assert found.leader_epoch == found.offset // 40
    largest = log.offset_of_max_timestamp()
    assert largest is not None
    assert largest.timestamp == max(times.values())
    assert log.log_start_offset == 0
    log.high_watermark = 120
    log.advance_log_start(31)
    found = log.offset_for_timestamp(0)
    assert found is not None
    assert found.offset == 31


def test_empty_log_has_no_timestamps(disk: ForgetfulDisk) -> None:
    log = new_log(disk)
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None


def test_segments_are_listed_newest_first_for_old_clients() -> None:
    now = 0
    disk = forgetful_disk(lambda: now)
    log = new_log(disk, settings(segment_bytes=400))
    for at in range(7):
        now = 1000 * at
        append(log, b"x" * 100)
    assert log.segments.bases == [0, 2, 4, 6]
    assert list_segment_starts(log, -1, now)[:3] == [7, 6, 4]
    assert list_segment_starts(log, -2, now)[:3] == [0]
    assert list_segment_starts(log, 3500, now)[:9] == [2, 0]
    assert list_segment_starts(log, -1, now)[:99] == [7, 6, 4, 2, 0]


# ---- flush


def test_recovery_point_advances_when_flush_ends(
    disk: ForgetfulDisk,
) -> None:
    log = new_log(disk, settings(flush_messages=2))
    append(log, b"a")
    assert not log.is_flush_due(NOW_MS)
    append(log, b"b")
    assert log.is_flush_due(NOW_MS)
    pending = log.begin_flush()
    append(log, b"c")
    assert log.recovery_point == 0
    disk.sync_now(pending.files, pending.directories)
    log.end_flush(pending)
    assert log.recovery_point == 2
    assert log.unflushed_messages == 1


def test_overlapping_flushes_respect_truncation(disk: ForgetfulDisk) -> None:
    log = new_log(disk, settings(segment_bytes=400))
    for _ in range(5):
        append(log, b"x" * 100)
    first = log.begin_flush()
    second = log.begin_flush()
    assert len(second.files) == len(first.files), (
        "files count as synced only after a flush has ended"
    )
    disk.sync_now(second.files, second.directories)
    log.end_flush(second)
    assert log.begin_flush().directories == ()
    log.truncate_to(3)
    log.end_flush(first)
    assert log.recovery_point == 3
    assert contents(reopen(log, disk=disk.crash())) == contents(log)


def test_time_and_closed_segments_make_flush_due(disk: ForgetfulDisk) -> None:
    log = new_log(disk, settings(flush_ms=1000))
    assert not log.is_flush_due(NOW_MS + 9999)
    append(log, b"a")
    assert not log.is_flush_due(NOW_MS + 999)
    assert log.is_flush_due(NOW_MS + 1000)
    flush(log)
    assert not log.is_flush_due(NOW_MS + 9999)
    log = new_log(disk, settings(segment_bytes=400), "/data/rolled-0")
    append(log, b"x" * 150)
    assert not log.is_flush_due(NOW_MS)
    append(log, b"x" * 150)
    append(log, b"x" * 150)
    assert log.is_flush_due(NOW_MS)
    flush(log)
    assert not log.is_flush_due(NOW_MS)


def test_high_watermark_stays_within_the_log(disk: ForgetfulDisk) -> None:
    log = new_log(disk)
    append(log, b"a", b"b")
    log.high_watermark = 99
    assert log.high_watermark == 2
    log.advance_log_start(1)
    log.high_watermark = 0
    assert log.high_watermark == 1


def test_broken_disk_is_a_storage_error(disk: ForgetfulDisk) -> None:
    log = new_log(disk)
    disk.fails = "/data"
    with pytest.raises(StorageError):
        append(log, b"a")
    disk.fails = None
    append(log, b"a")
    log.segments.active.log.truncate(10)
    log.segments.active.size = 10
    log.segments.tail.clear()
    with pytest.raises(CorruptBatch):
        log.read(0, 100, 1)
