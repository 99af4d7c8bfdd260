"""Transactions in one log: last stable offset, aborted transactions, fencing, truncation, recovery."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from barnabas.batch.header import BatchHeader
from barnabas.batch.markers import Marker, read_marker
from barnabas.errors import ApiError, ErrorCode
from barnabas.storage import snapshots
from barnabas.storage.log import Log
from barnabas.storage.producers import OPEN, Producers, Verification, decode_snapshot
from barnabas.storage.read_committed import aborted_in_read, find_aborted
from barnabas.storage.segment import Segment
from barnabas.storage.transaction_index import AbortedEntry
from tests.unit.storage.builders import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    end_transaction,
    flush,
    forgetful_disk,
    new_log,
    produce,
    produce_in_transaction,
    reopen,
    settings,
)


def replicate(log: Log) -> None:
    log.high_watermark = log.log_end_offset


def code_of(act: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        act()
    return caught.value.code


def all_aborted(log: Log) -> list[AbortedEntry]:
    return find_aborted(log, 0, log.log_end_offset)


def stored(log: Log, offset: int) -> memoryview:
    read = log.read(offset, 1, log.log_end_offset)
    (part,) = read.slices
    return memoryview(part.file.read(part.position, part.size))


# ---- last stable offset


def test_last_stable_offset_is_high_watermark_without_transactions() -> None:
    log = new_log(forgetful_disk())
    produce(log, 0, b"a", b"b")
    assert log.last_stable_offset == 0
    log.high_watermark = 1
    assert log.last_stable_offset == 1
    replicate(log)
    assert log.last_stable_offset == 2


def test_open_transaction_holds_last_stable_offset() -> None:
    log = new_log(forgetful_disk())
    append(log, b"plain")
    produce_in_transaction(log, 0, b"a", producer=1)
    append(log, b"plain")
    produce_in_transaction(log, 0, b"b", producer=2)
    assert log.last_stable_offset == 0, "the high watermark"
    replicate(log)
    assert log.last_stable_offset == 1
    end_transaction(log, commit=True, producer=1)
    replicate(log)
    assert log.last_stable_offset == 3
    end_transaction(log, commit=False, producer=2)
    replicate(log)
    assert log.last_stable_offset == log.log_end_offset == 6


@pytest.mark.parametrize("commit", [True, False])
def test_marker_counts_when_it_is_replicated(commit: bool) -> None:
    log = new_log(forgetful_disk())
    produce_in_transaction(log, 0, b"a", b"b")
    replicate(log)
    end_transaction(log, commit=commit)
    assert log.last_stable_offset == 0
    log.high_watermark = 2
    assert log.last_stable_offset == 0
    log.high_watermark = 3
    assert log.last_stable_offset == 3


def test_last_stable_offset_is_not_before_the_log_start() -> None:
    log = new_log(forgetful_disk())
    produce_in_transaction(log, 0, b"a", b"b", b"c")
    replicate(log)
    log.advance_log_start(2)
    assert log.last_stable_offset == 2


def test_marker_without_records_changes_no_offset() -> None:
    log = new_log(forgetful_disk())
    end_transaction(log, commit=False, producer=9)
    assert not log.producers.has_undecided()
    assert all_aborted(log) == []
    assert log.producers.by_id[9].next_sequence == 0


def test_completed_transactions_are_forgotten_on_a_follower() -> None:
    leader, follower = new_log(forgetful_disk()), new_log(forgetful_disk())
    for at in range(20):
        produce_in_transaction(leader, at, b"a")
        end_transaction(leader, commit=True)
        for offset in (2 * at, 2 * at + 1):
            follower.append_as_follower(stored(leader, offset))
        replicate(follower)
    assert len(follower.producers.completed) <= 1
    assert follower.last_stable_offset == 40


# ---- markers and aborted transactions


def test_marker_has_kafka_format() -> None:
    log = new_log(forgetful_disk())
    produce_in_transaction(log, 0, b"a", producer=3, producer_epoch=2)
    end_transaction(log, commit=True, producer=3, producer_epoch=2, coordinator_epoch=77)
    marker = stored(log, 1)
    header = BatchHeader(marker)
    assert (header.is_control, header.is_transactional) == (True, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 2, -1)
    assert read_marker(marker) == Marker(is_commit=True, coordinator_epoch=77)
    key, value = b"\0\0\0\1", b"\0\0\0\0\0\x4d"
    assert bytes(marker[61:]) == b"\x20\0\0\0\x08" + key + b"\x0c" + value + b"\0"


def test_aborted_transactions_are_found_by_offset() -> None:
    log = new_log(forgetful_disk())
    produce_in_transaction(log, 0, b"a", producer=1)
    produce_in_transaction(log, 0, b"b", producer=2)
    end_transaction(log, commit=False, producer=2)
    end_transaction(log, commit=True, producer=1)
    produce_in_transaction(log, 1, b"c", producer=1)
    end_transaction(log, commit=False, producer=1)
    first = AbortedEntry(2, first_offset=1, last_offset=2, last_stable_offset=0)
    second = AbortedEntry(1, first_offset=4, last_offset=5, last_stable_offset=6)
    assert all_aborted(log) == [first, second]
    assert find_aborted(log, 0, 1) == []
    assert find_aborted(log, 0, 2) == [first]
    assert find_aborted(log, 3, 5) == [second]
    assert find_aborted(log, 3, 4) == []


def test_transaction_aborted_in_a_later_segment_is_found() -> None:
    log = new_log(forgetful_disk(), settings(segment_bytes=300))
    produce_in_transaction(log, 0, b"x" * 100, producer=1)
    for at in range(6):
        produce(log, at, b"x" * 100)
    end_transaction(log, commit=False, producer=1)
    assert len(log.segments) > 3
    expected = [AbortedEntry(1, first_offset=0, last_offset=7, last_stable_offset=8)]
    assert find_aborted(log, 0, 1) == expected
    read = log.read(0, 1, log.log_end_offset)
    assert aborted_in_read(log, 0, read) == expected
    read = log.read(7, 1, log.log_end_offset)
    assert aborted_in_read(log, 7, read) == expected
    for sequence in range(6, 12):
        produce(log, sequence, b"x" * 100)
    assert find_aborted(log, 0, 1) == expected, "the index is in a file now"
    read = log.read(9, 1, log.log_end_offset)
    assert aborted_in_read(log, 9, read) == []


def test_read_of_a_large_segment_gets_few_aborted_transactions() -> None:
    log = new_log(forgetful_disk(), settings(index_interval_bytes=500))
    for at in range(50):
        produce_in_transaction(log, at, b"x" * 100)
        end_transaction(log, commit=False)
    for _ in range(2):
        read = log.read(40, 600, log.log_end_offset)
        found = aborted_in_read(log, 40, read)
        assert found[0].first_offset == 40
        assert 2 <= len(found) <= 12
        log.roll(NOW_MS)


# ---- fencing


def test_old_producer_epoch_is_fenced() -> None:
    log = new_log(forgetful_disk())
    produce_in_transaction(log, 0, b"a", producer_epoch=1)
    end_transaction(log, commit=False, producer_epoch=2)
    fenced = ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(lambda: produce_in_transaction(log, 1, b"b", producer_epoch=1)) == fenced
    assert code_of(lambda: end_transaction(log, commit=True, producer_epoch=1)) == fenced
    wrong = code_of(lambda: produce_in_transaction(log, 1, b"b", producer_epoch=2))
    assert wrong == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    produce_in_transaction(log, 0, b"b", producer_epoch=2)


def test_old_coordinator_is_fenced() -> None:
    log = new_log(forgetful_disk())
    produce_in_transaction(log, 0, b"a")
    end_transaction(log, commit=True, coordinator_epoch=5)
    produce_in_transaction(log, 1, b"b")
    code = code_of(lambda: end_transaction(log, commit=True, coordinator_epoch=4))
    assert code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    end_transaction(log, commit=True, coordinator_epoch=6)


def test_batch_outside_the_open_transaction_is_rejected() -> None:
    log = new_log(forgetful_disk())
    produce_in_transaction(log, 0, b"a")
    assert code_of(lambda: produce(log, 1, b"b")) == ErrorCode.INVALID_TXN_STATE
    code = code_of(lambda: produce(log, 0, b"b", producer_epoch=1))
    assert code == ErrorCode.INVALID_TXN_STATE
    end_transaction(log, commit=True)
    produce(log, 1, b"b")


def test_group_coordinator_need_not_count_sequence_numbers() -> None:
    log = new_log(forgetful_disk())

    def write(epoch: int) -> None:
        data = batch(
            [b"a", b"b"],
            producer_id=7,
            producer_epoch=epoch,
            base_sequence=0,
            is_transactional=True,
        )
        log.append_as_leader(
            data, BatchHeader(data), leader_epoch=0, now_ms=NOW_MS, checks_sequence=False
        )

    for _ in range(3):
        write(1)
    assert log.log_end_offset == 6
    assert code_of(lambda: write(0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert list(log.producers.ongoing) == [0]


# ---- verification


def send(log: Log, sequence: int, verification: Verification, *, epoch: int = 0) -> bool:
    """Append a transactional batch with a verification. Return whether it is a duplicate."""
    data = batch(
        [b"v"], producer_id=7, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
    )
    info = log.append_as_leader(
        data, BatchHeader(data), leader_epoch=0, now_ms=NOW_MS, verification=verification
    )
    return info.is_duplicate


def test_first_batch_needs_a_current_verification() -> None:
    log = new_log(forgetful_disk())
    assert code_of(lambda: send(log, 0, OPEN)) == ErrorCode.INVALID_TXN_STATE
    verification = log.producers.verify(7, 0, 0)
    assert not send(log, 0, verification)
    assert log.producers.verify(7, 0, 1) is OPEN
    assert not send(log, 1, OPEN)
    end_transaction(log, commit=False)
    assert code_of(lambda: send(log, 2, OPEN)) == ErrorCode.INVALID_TXN_STATE
    assert code_of(lambda: send(log, 2, verification)) == ErrorCode.INVALID_TXN_STATE
    assert send(log, 1, OPEN), "a duplicate needs no verification"


def test_marker_makes_a_pending_verification_useless() -> None:
    log = new_log(forgetful_disk())
    before = log.producers.verify(7, 0, 0)
    end_transaction(log, commit=False)
    after = log.producers.verify(7, 0, 0)
    assert after is not before
    assert code_of(lambda: send(log, 0, before)) == ErrorCode.INVALID_TXN_STATE
    assert not send(log, 0, after)


def test_later_batch_waits_for_the_first_unverified_one() -> None:
    log = new_log(forgetful_disk())
    verification = log.producers.verify(7, 0, 0)
    assert log.producers.verify(7, 0, 1) is verification
    code = code_of(lambda: send(log, 1, verification))
    assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not send(log, 0, verification)
    assert not send(log, 1, OPEN)


def test_new_epoch_resets_the_sequence_of_a_verification() -> None:
    log = new_log(forgetful_disk())
    verification = log.producers.verify(7, 0, 5)
    assert log.producers.verify(7, 1, 7) is verification
    assert not send(log, 7, verification, epoch=1)


def test_unused_verification_expires() -> None:
    log = new_log(forgetful_disk())
    log.producers.verify(7, 0, 0)
    log.expire_producers(0)
    assert log.producers.verifications
    log.expire_producers(1)
    assert not log.producers.verifications


# ---- files


def test_snapshot_keeps_open_transactions_in_order() -> None:
    log = new_log(forgetful_disk())
    produce_in_transaction(log, 0, b"a", producer=2)
    produce_in_transaction(log, 0, b"a", producer=1)
    end_transaction(log, commit=True, producer=2, coordinator_epoch=4)
    produce_in_transaction(log, 1, b"a", producer=2)
    loaded = decode_snapshot(log.producers.encode())
    assert list(loaded.ongoing.items()) == [(1, 1), (3, 2)]
    assert loaded.by_id[2].coordinator_epoch == 4


def fill(log: Log) -> None:
    """Write transactions that overlap and cross segments. Producer 1 aborts, 2 commits, 3 stays open."""
    for at in range(12):
        produce_in_transaction(log, 2 * at, b"x" * 60, producer=1)
        produce_in_transaction(log, at, b"x" * 60, producer=2)
        if at == 4:
            produce_in_transaction(log, 0, b"x" * 60, producer=3)
        produce_in_transaction(log, 2 * at + 1, b"x" * 60, producer=1)
        end_transaction(log, commit=False, producer=1)
        end_transaction(log, commit=True, producer=2)


@pytest.mark.parametrize("clean", [True, False])
def test_restart_keeps_transactions(clean: bool) -> None:
    log = new_log(forgetful_disk(), settings(segment_bytes=1000))
    fill(log)
    replicate(log)
    expected, stable = all_aborted(log), log.last_stable_offset
    assert len(expected) == 12
    assert len(log.segments) > 4
    log.close(clean=clean)
    again = reopen(log, clean=clean)
    replicate(again)
    assert all_aborted(again) == expected
    assert again.last_stable_offset == stable
    assert [each.aborted for each in again.segments][-1] is not None


@pytest.mark.parametrize("keep", range(0, 61, 3))
def test_truncation_keeps_transactions_before_the_offset(keep: int) -> None:
    log, copy = new_log(forgetful_disk(), settings(segment_bytes=1000)), new_log(forgetful_disk())
    fill(log)
    end = log.log_end_offset
    log.truncate_to(keep)
    replicate(log)
    fill(copy)
    copied = new_log(forgetful_disk())
    for offset in range(keep):
        copied.append_as_follower(stored(copy, offset))
    replicate(copied)
    assert end == 61
    assert all_aborted(log) == all_aborted(copied)
    assert log.last_stable_offset == copied.last_stable_offset
    assert log.producers.ongoing == copied.producers.ongoing
    log.close(clean=True)
    again = reopen(log, clean=True)
    assert all_aborted(again) == all_aborted(copied)


@pytest.mark.parametrize("damage", [b"\0" * 34, b"x", b"\0" * 33])
def test_damaged_transaction_index_is_rebuilt(damage: bytes) -> None:
    disk = forgetful_disk()
    log = new_log(disk, settings(segment_bytes=1000))
    fill(log)
    expected = all_aborted(log)
    log.close(clean=True)
    names = [name for name in disk.list(DIRECTORY) if name.endswith(".txnindex")]
    assert len(names) > 3
    for name in names:
        path = f"{DIRECTORY}/{name}"
        disk.replace_bytes(path, disk.read_bytes(path) + damage)
    again = reopen(log, clean=True)
    assert all_aborted(again) == expected
    again.close(clean=True)
    assert all_aborted(reopen(again, clean=True)) == expected


def test_segment_without_aborted_transactions_has_no_index_file() -> None:
    disk = forgetful_disk()
    log = new_log(disk)
    produce_in_transaction(log, 0, b"a")
    end_transaction(log, commit=True)
    log.roll(NOW_MS)
    flush(log)
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(".txnindex")]
    produce_in_transaction(log, 1, b"a")
    end_transaction(log, commit=False)
    log.roll(NOW_MS)
    assert disk.read_bytes(f"{DIRECTORY}/{2:020d}.txnindex") == bytes.fromhex(
        "0000" + "0000000000000007" + "0000000000000002" + "0000000000000003" + "0000000000000004"
    )


def test_deleted_segments_remove_their_transaction_index() -> None:
    disk = forgetful_disk()
    log = new_log(disk, settings(segment_bytes=1000, retention_bytes=1000, file_delete_delay_ms=0))
    fill(log)
    replicate(log)
    assert log.delete_old_segments(NOW_MS) > 2
    log.purge(NOW_MS)
    bases = {f"{base:020d}" for base in log.segments.bases}
    assert {name.partition(".")[0] for name in disk.list(DIRECTORY) if "index" in name} == bases
    assert snapshots.list_snapshots(disk, DIRECTORY)
    assert log.last_stable_offset == max(log.log_start_offset, 22)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_truncation_replays_few_batches_after_snapshots_inside_segment(
    monkeypatch: pytest.MonkeyPatch, is_restarted: bool
) -> None:
    monkeypatch.setattr(snapshots, "INTERVAL_BYTES", 1000)
    monkeypatch.setattr(snapshots, "INTERVAL_BYTES_PER_PRODUCER", 0)
    disk = forgetful_disk()
    log = new_log(disk)
    for number in range(200):
        produce_in_transaction(log, number, b"a")
        end_transaction(log, commit=number % 2 == 0)
        log.save_producers_if_due()
    flush(log)
    if is_restarted:
        log = reopen(log, disk=disk.crash(), recovery_point=0)
    taken = snapshots.list_snapshots(log.disk, DIRECTORY)
    assert len(taken) > 10
    replayed: list[tuple[int, int]] = []
    replay = snapshots.replay_segment

    def counting(producers: Producers, segment: Segment, start: int, end: int) -> None:
        replayed.append((start, end))
        replay(producers, segment, start, end)

    monkeypatch.setattr(snapshots, "replay_segment", counting)
    log.truncate_to(350)
    ((start, end),) = replayed
    assert end == log.log_end_offset == 350
    assert 0 <= end - start < 20
    (producer,) = log.producers.by_id.values()
    assert (producer.next_sequence, producer.transaction_first_offset) == (175, -1)
    assert max(snapshots.list_snapshots(log.disk, DIRECTORY)) <= 350


def test_snapshots_inside_closed_segments_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "INTERVAL_BYTES", 1000)
    monkeypatch.setattr(snapshots, "INTERVAL_BYTES_PER_PRODUCER", 0)
    disk = forgetful_disk()
    log = new_log(disk, settings(segment_bytes=5000))
    for number in range(100):
        produce(log, number, b"a" * 100)
        log.save_producers_if_due()
    inside_active = [
        offset
        for offset in snapshots.list_snapshots(disk, DIRECTORY)
        if offset not in log.segments.bases
    ]
    assert len(log.segments.bases) > 2
    assert inside_active
    assert min(inside_active) > log.segments.bases[-1]


@pytest.mark.parametrize("seed", range(25))
def test_transactions_survive_power_loss(seed: int) -> None:
    """After a power loss the log knows the transactions of the records that it still has."""
    random = Random(seed)
    disk = forgetful_disk()
    log, copy = new_log(disk, settings(segment_bytes=500)), new_log(forgetful_disk())
    flush(log)
    sequences = {1: 0, 2: 0, 3: 0}
    for _ in range(60):
        producer = random.choice(sorted(sequences))
        if random.random() < 0.6:
            produce_in_transaction(log, sequences[producer], b"x" * 40, producer=producer)
            sequences[producer] += 1
        else:
            end_transaction(log, commit=random.random() < 0.3, producer=producer)
        copy.append_as_follower(stored(log, log.log_end_offset - 1))
        if random.random() < 0.2:
            flush(log)
        after = disk.crash(random.choice((None, Random(seed))))
        point = random.choice((0, log.recovery_point))
        again = reopen(log, disk=after, recovery_point=point)
        end = again.log_end_offset
        assert end >= log.recovery_point
        expected = [entry for entry in all_aborted(copy) if entry.last_offset < end]
        assert all_aborted(again) == expected
        reference = new_log(forgetful_disk())
        for offset in range(end):
            reference.append_as_follower(stored(copy, offset))
        assert again.producers.ongoing == reference.producers.ongoing
