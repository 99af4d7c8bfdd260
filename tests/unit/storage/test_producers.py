from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c

from barnabas.batch.header import BatchHeader
from barnabas.errors import ApiError, ErrorCode
from barnabas.storage import snapshots
from barnabas.storage.producer_updates import apply_batch
from barnabas.storage.producers import SEQUENCE_MAX, Producers, decode_snapshot
from tests.unit.storage.builders import (
    DIRECTORY,
    batch,
    contents,
    forgetful_disk,
    new_log,
    produce,
    reopen,
    settings,
)


def header(sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7) -> BatchHeader:
    values = [b"v"] * count
    return BatchHeader(
        batch(values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    )


def rejection(producers: Producers, sent: BatchHeader) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        producers.check(sent)
    return caught.value.code


def test_next_sequence_is_new_and_repeated_batch_is_duplicate() -> None:
    producers = Producers()
    for at in range(7):
        sent = header(2 * at, 2)
        assert producers.check(sent) is None
        producers.record(sent, 100 + 2 * at, 1000 + at)
    for at in (2, 3, 4, 5, 6):
        found = producers.check(header(2 * at, 2))
        assert found is not None
        assert (found.first_offset, found.last_offset) == (100 + 2 * at, 101 + 2 * at)
        assert found.timestamp == 1000 + at
    assert rejection(producers, header(2, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert rejection(producers, header(4, 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert rejection(producers, header(15)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(header(14)) is None


def test_old_epoch_is_fenced_and_new_epoch_starts_at_zero() -> None:
    producers = Producers()
    producers.record(header(0, epoch=5), 0, 0)
    assert rejection(producers, header(1, epoch=4)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert rejection(producers, header(1, epoch=6)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(header(0, epoch=6)) is None
    producers.record(header(0, epoch=6), 1, 0)
    assert rejection(producers, header(1, epoch=5)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producers.check(header(1, epoch=6)) is None


def test_unknown_producer_may_start_at_any_sequence() -> None:
    assert Producers().check(header(4711)) is None


def test_sequence_wraps_around() -> None:
    producers = Producers()
    producers.record(header(SEQUENCE_MAX - 1, 4), 0, 0)
    found = producers.check(header(SEQUENCE_MAX - 1, 4))
    assert found is not None
    assert found.last_sequence == 1
    assert producers.check(header(2)) is None
    producers = Producers()
    producers.record(header(SEQUENCE_MAX), 0, 0)
    assert producers.check(header(0)) is None
    restored = decode_snapshot(producers.encode())
    assert restored.check(header(0)) is None
    found = restored.check(header(SEQUENCE_MAX))
    assert found is not None


def test_snapshot_has_kafka_format() -> None:
    producers = Producers()
    producers.record(header(0, 3, producer=4242, epoch=2), 10, 1_700_000_000_123)
    body = (
        (1).to_bytes(4, "big")
        + (4242).to_bytes(8, "big")
        + (2).to_bytes(2, "big")
        + (2).to_bytes(4, "big")
        + (12).to_bytes(8, "big")
        + (2).to_bytes(4, "big")
        + (1_700_000_000_123).to_bytes(8, "big")
        + (-1).to_bytes(4, "big", signed=True)
        + (-1).to_bytes(8, "big", signed=True)
    )
    assert producers.encode() == b"\0\1" + crc32c(body).to_bytes(4, "big") + body
    restored = decode_snapshot(producers.encode())
    found = restored.check(header(0, 3, producer=4242, epoch=2))
    assert found is not None
    assert (found.first_offset, found.last_offset) == (10, 12)


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: b"", lambda d: d + b"x"])
def test_corrupt_snapshot_is_rejected(damage: object) -> None:
    producers = Producers()
    producers.record(header(0), 10, 5)
    data = producers.encode()
    assert callable(damage)
    with pytest.raises(ValueError):
        decode_snapshot(damage(data))
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1
        with pytest.raises(ValueError):
            decode_snapshot(bytes(flipped))


def test_idle_producer_expires_unless_transaction_is_open() -> None:
    producers = Producers()
    producers.record(header(0, producer=1), 0, 1000)
    producers.record(header(0, producer=2), 1, 2000)
    fields: dict[str, Any] = {"producer_id": 3, "producer_epoch": 0, "base_sequence": 0}
    producers.record(BatchHeader(batch([b"v"], is_transactional=True, **fields)), 2, 1000)
    producers.expire(1000, 10_000)
    producers.record(header(1, producer=2), 3, 2001)
    producers.expire(10_999, 10_000)
    assert set(producers.by_id) == {1, 2, 3}
    producers.expire(11_000, 10_000)
    assert set(producers.by_id) == {2, 3}
    producers.expire(20_998, 10_000)
    assert set(producers.by_id) == {2, 3}
    producers.expire(20_999, 10_000)
    assert set(producers.by_id) == {3}


def test_expiry_ignores_record_timestamps() -> None:
    producers = Producers()
    producers.record(header(0, producer=1), 0, 0)
    producers.record(header(0, producer=2), 1, 2**62)
    for monotonic_ms in (0, 9_999):
        producers.expire(monotonic_ms, 10_000)
        assert set(producers.by_id) == {1, 2}
    producers.expire(10_000, 10_000)
    assert not producers.by_id


def test_loaded_producer_gets_full_expiration_time() -> None:
    producers = Producers()
    producers.record(header(0, producer=1), 0, 1000)
    producers.expire(0, 10_000)
    loaded = decode_snapshot(producers.encode())
    loaded.expire(50_000, 10_000)
    loaded.expire(59_999, 10_000)
    assert set(loaded.by_id) == {1}
    loaded.expire(60_000, 10_000)
    assert not loaded.by_id


def test_transaction_marker_ends_transaction_and_keeps_sequence() -> None:
    producers = Producers()
    fields: dict[str, Any] = {"producer_id": 3, "producer_epoch": 1}
    data = BatchHeader(batch([b"v"], is_transactional=True, base_sequence=0, **fields))
    producers.record(data, 5, 1000)
    assert producers.by_id[3].transaction_first_offset == 5
    marker = batch(
        [b"\0\0\0\0\0\x09"], key=b"\0\0\0\1", is_transactional=True, is_control=True, **fields
    )
    apply_batch(producers, BatchHeader(marker), marker)
    assert producers.by_id[3].transaction_first_offset == -1
    assert producers.by_id[3].coordinator_epoch == 9
    assert producers.by_id[3].next_sequence == 1


def test_duplicate_returns_its_offsets_and_is_not_written() -> None:
    log = new_log(forgetful_disk())
    sent = [produce(log, at, b"%d" % at) for at in range(5)]
    again = produce(log, 2, b"2")
    assert again.is_duplicate
    assert again[:2] == sent[2][:2]
    assert contents(log) == {at: b"%d" % at for at in range(5)}


def test_snapshots_are_kept_for_existing_segments() -> None:
    disk = forgetful_disk()
    log = new_log(disk, settings(segment_bytes=300, retention_bytes=300, file_delete_delay_ms=0))
    for at in range(20):
        produce(log, at, b"x" * 100)
    assert snapshots.list_snapshots(disk, DIRECTORY) == log.segments.bases[1:]
    log.high_watermark = 20
    log.delete_old_segments(0)
    log.purge(10**15)
    assert set(snapshots.list_snapshots(disk, DIRECTORY)) <= set(log.segments.bases)
    log.close(clean=True)
    assert set(snapshots.list_snapshots(disk, DIRECTORY)) <= {*log.segments.bases, 20}
    again = reopen(log, clean=True)
    assert produce(again, 19, b"x" * 100).is_duplicate


def test_producer_may_continue_after_its_records_are_deleted() -> None:
    disk = forgetful_disk()
    log = new_log(disk, settings(retention_ms=0))
    for at in range(5):
        produce(log, at, b"x")
    log.high_watermark = 5
    assert log.delete_old_segments(10**15) == 1
    assert not produce(log, 5, b"x").is_duplicate
    log.close(clean=True)
    assert not produce(reopen(log, clean=True), 6, b"x").is_duplicate
