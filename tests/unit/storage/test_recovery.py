from __future__ import annotations

from zlib import crc32

import pytest

from barnabas.errors import StorageError
from barnabas.storage import snapshots
from barnabas.storage.log import Log
from barnabas.storage.recovery import open_log
from simulator.disk import ForgetfulDisk
from tests.unit.storage.builders import (
    DIRECTORY,
    NOW_MS,
    TOPIC_ID,
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

SMALL = settings(segment_bytes=1000, index_interval_bytes=150)


@pytest.fixture
def disk() -> ForgetfulDisk:
    return forgetful_disk()


def log_with_segments(disk: ForgetfulDisk) -> Log:
    log = new_log(disk, SMALL)
    for at in range(60):
        append(log, b"%d" % at * 20, timestamps=[NOW_MS + at], epoch=at // 20)
        if at % 4 == 0:
            produce(log, at // 4, b"from a producer")
    assert len(log.segments) > 4
    return log


def observable_state(log: Log) -> tuple[object, ...]:
    """Return everything a client can find out about a log."""
    return (
        contents(log),
        log.log_start_offset,
        log.log_end_offset,
        log.segments.bases,
        log.epochs.entries,
        log.producers.encode(),
        [log.offset_for_timestamp(NOW_MS + at) for at in range(-1, 62, 5)],
        log.offset_of_max_timestamp(),
        log.topic_id,
    )


@pytest.mark.parametrize("clean", [True, False])
def test_log_is_unchanged_after_restart(disk: ForgetfulDisk, clean: bool) -> None:
    log = log_with_segments(disk)
    before = observable_state(log)
    log.close(clean=clean)
    again = reopen(log, clean=clean)
    assert observable_state(again) == before
    assert again.topic_id == TOPIC_ID
    assert again.recovery_point == (again.log_end_offset if clean else 0)
    append(again, b"more")
    again.close(clean=clean)
    assert reopen(again, clean=clean).log_end_offset == log.log_end_offset + 1


def test_clean_shutdown_syncs_everything(disk: ForgetfulDisk) -> None:
    log = log_with_segments(disk)
    before = observable_state(log)
    log.close(clean=True)
    assert observable_state(reopen(log, clean=True, disk=disk.crash())) == before


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\0" * 70, b"\xff" * 70, b"{garbage}" * 9],
    ids=["nothing", "zeros", "ones", "text"],
)
def test_partial_last_batch_is_truncated(garbage: bytes) -> None:
    whole = forgetful_disk()
    log = new_log(whole)
    for at in range(3):
        append(log, b"kept %d" % at)
    kept = contents(log)
    kept_bytes = log.segments.active.size
    append(log, b"the last one", b"with two records")
    data = whole.read_bytes(f"{DIRECTORY}/{0:020d}.log")
    for size in range(kept_bytes, len(data)):
        if (data[:size] + garbage).startswith(data):
            continue  # the garbage equals the missing bytes
        disk = forgetful_disk()
        broken = new_log(disk)
        broken.segments.active.log.append([data[:size] + garbage])
        again = reopen(broken)
        assert contents(again) == kept, f"truncated to {size} bytes"
        assert again.log_end_offset == 3
        assert disk.size(f"{DIRECTORY}/{0:020d}.log") == kept_bytes
        assert append(again, b"next").first_offset == 3
        assert contents(reopen(again)) == {**kept, 3: b"next"}


def test_flipped_bit_truncates_log_before_its_batch() -> None:
    original = forgetful_disk()
    log = new_log(original)
    ends = [0]
    for at in range(4):
        append(log, b"value %d" % at)
        ends.append(log.segments.active.size)
    data = original.read_bytes(f"{DIRECTORY}/{0:020d}.log")
    for position in range(len(data)):
        hit = sum(1 for end in ends if end <= position) - 1
        # The checksum does not cover base offset and leader epoch: recovery cannot detect these.
        within = position - ends[hit]
        if within < 8 or 12 <= within < 16:
            continue
        disk = forgetful_disk()
        broken = new_log(disk)
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        broken.segments.active.log.append([flipped])
        assert reopen(broken).log_end_offset == hit, f"bit in byte {position}"


def test_segments_after_a_corrupt_one_are_removed(disk: ForgetfulDisk) -> None:
    log = log_with_segments(disk)
    before = contents(log)
    victim = log.segments[2]
    victim.log.truncate(victim.size - 1)
    again = reopen(log)
    assert again.segments.bases == log.segments.bases[:3]
    assert contents(again) == {o: v for o, v in before.items() if o < again.log_end_offset}
    assert again.log_end_offset == log.segments.bases[3] - 1
    assert append(again, b"more", epoch=9).first_offset == again.log_end_offset - 1


def test_gap_between_unflushed_segments_ends_the_log(disk: ForgetfulDisk) -> None:
    """A power loss may remove the last batches of one segment and keep the next segment."""
    log = log_with_segments(disk)
    victim = log.segments[2]
    found = victim.find(log.segments.bases[3] - 1)
    assert found is not None
    victim.log.truncate(found.position)
    again = reopen(log)
    assert again.log_end_offset == log.segments.bases[3] - 1
    compacted = new_log(disk, settings(cleanup_policy=("compact",)), "/data/compacted-0")
    compacted.append_as_follower(batch([b"a"]))
    compacted.roll(NOW_MS, base_offset=50)
    compacted.append_as_follower(batch_at(60))
    assert set(contents(reopen(compacted))) == {0, 60}


def batch_at(offset: int) -> memoryview:
    return memoryview(offset.to_bytes(8, "big") + bytes(batch([b"b"])[8:]))


def test_only_unflushed_segments_are_read(disk: ForgetfulDisk) -> None:
    log = log_with_segments(disk)
    before = observable_state(log)
    closed = log.segments[0]
    closed.log.append([b"garbage that no start looks at"])
    again = reopen(log, recovery_point=log.segments.bases[2])
    assert again.log_end_offset == log.log_end_offset
    assert again.recovery_point == log.segments.bases[2]
    assert again.log_start_offset == before[1]


def test_recovery_point_beyond_log_end_removes_no_segment(
    disk: ForgetfulDisk,
) -> None:
    log = log_with_segments(disk)
    before = contents(log)
    again = reopen(log, recovery_point=10**9)
    assert again.log_end_offset == log.log_end_offset
    assert contents(again) == before
    assert again.recovery_point == 0
    log.segments[1].log.truncate(log.segments[1].size - 1)
    assert reopen(log, recovery_point=10**9).segments.bases == log.segments.bases


# ---- auxiliary files


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("damage", ["missing", "empty", "zero", "garbage", "odd", "preallocated"])
@pytest.mark.parametrize("clean", [True, False])
def test_derived_files_are_rebuilt(
    disk: ForgetfulDisk, suffix: str, damage: str, clean: bool
) -> None:
    log = log_with_segments(disk)
    before = observable_state(log)
    log.close(clean=True)
    for name in disk.list(DIRECTORY):
        if name.endswith(suffix):
            path = f"{DIRECTORY}/{name}"
            data = disk.read_bytes(path)
            if damage == "missing":
                disk.remove(path)
            else:
                if damage == "preallocated" and suffix not in (".index", ".timeindex"):
                    continue
                replacement = {
                    "empty": b"",
                    "zero": bytes(len(data)),
                    "garbage": bytes((7 * at + 13) % 251 for at in range(len(data))),
                    "odd": data[:-1],
                    "preallocated": data + bytes(24 * 50),
                }[damage]
                disk.replace_bytes(path, replacement)
    again = reopen(log, clean=clean, recovery_point=log.segments.bases[-1])
    assert observable_state(again) == before
    append(again, b"x", timestamps=[NOW_MS + 999])
    again.close(clean=True)
    assert reopen(again, clean=True).log_end_offset == log.log_end_offset + 1


def test_index_pointing_into_a_batch_is_rebuilt_on_use(
    disk: ForgetfulDisk,
) -> None:
    log = log_with_segments(disk)
    before = observable_state(log)
    log.close(clean=True)
    for base in log.segments.bases:
        path = f"{DIRECTORY}/{base:020d}.index"
        data = bytearray(disk.read_bytes(path))
        for at in range(7, len(data), 8):
            data[at] ^= 3
        disk.replace_bytes(path, bytes(data))
    assert observable_state(reopen(log, clean=True)) == before


def test_missing_partition_metadata_gives_no_topic_id(disk: ForgetfulDisk) -> None:
    log = log_with_segments(disk)
    disk.replace_bytes(f"{DIRECTORY}/partition.metadata", b"")
    assert reopen(log).topic_id is None
    disk.remove(f"{DIRECTORY}/partition.metadata")
    assert reopen(log).topic_id is None


def test_leftover_files_are_removed_and_swaps_completed(disk: ForgetfulDisk) -> None:
    log = log_with_segments(disk)
    before = contents(log)
    log.close(clean=True)
    first, second = log.segments.bases[0], log.segments.bases[1]
    files = {
        f"{99:020d}.log.deleted": b"old",
        f"{99:020d}.index": b"orphan",
        f"{98:020d}.timeindex": b"orphan",
        "leader-epoch-checkpoint.tmp": b"half",
    }
    for name, data in files.items():
        disk.replace_bytes(f"{DIRECTORY}/{name}", data)
    # A compaction had merged the first two segments.
    merged = b"".join(disk.read_bytes(f"{DIRECTORY}/{base:020d}.log") for base in (first, second))
    disk.replace_bytes(f"{DIRECTORY}/{first:020d}.log.swap", merged)
    again = reopen(log, clean=True)
    assert contents(again) == before
    assert again.segments.bases == [first, *log.segments.bases[2:]]
    assert not [
        name for name in disk.list(DIRECTORY) if name.endswith((".deleted", ".swap", ".tmp"))
    ]
    assert f"{99:020d}.index" not in disk.list(DIRECTORY)


def test_unfinished_compaction_is_discarded(disk: ForgetfulDisk) -> None:
    log = log_with_segments(disk)
    before = contents(log)
    log.close(clean=True)
    disk.replace_bytes(f"{DIRECTORY}/{0:020d}.log.cleaned", b"half")
    disk.replace_bytes(f"{DIRECTORY}/{0:020d}.index.swap", b"half")
    assert contents(reopen(log, clean=True)) == before


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("value", [76, 5000, 2**63 - 1])
def test_log_start_beyond_log_end_keeps_records(
    disk: ForgetfulDisk, value: int, clean: bool
) -> None:
    log = log_with_segments(disk)
    before = contents(log)
    end = log.log_end_offset
    log.close(clean=clean)
    again = reopen(log, log_start_offset=value, clean=clean)
    assert contents(again) == before
    assert (again.log_start_offset, append(again, b"a", epoch=9).first_offset) == (0, end)


def test_log_start_is_checked_against_leader_epochs(
    disk: ForgetfulDisk,
) -> None:
    log = log_with_segments(disk)
    before = contents(log)
    log.high_watermark = log.log_end_offset
    again = reopen(log, log_start_offset=log.segments.bases[3])
    assert (again.segments.bases, contents(again)) == (log.segments.bases, before)
    again.high_watermark = again.log_end_offset
    again.advance_log_start(log.segments.bases[2] + 1)
    moved = reopen(again)
    assert moved.log_start_offset == log.segments.bases[2] + 1
    assert moved.segments.bases == log.segments.bases[2:]


def test_empty_log_starts_at_checkpoint_below_high_watermark(
    disk: ForgetfulDisk,
) -> None:
    for high_watermark, start in ((100, 50), (49, 0)):
        directory = f"/data/empty{high_watermark}-0"
        log = new_log(disk, directory=directory)
        for _ in range(2):
            again = open_log(
                disk,
                directory,
                log.config,
                was_clean_shutdown=False,
                recovery_point=0,
                log_start_offset=50,
                high_watermark=high_watermark,
                now_ms=NOW_MS,
            )
            assert (again.log_start_offset, again.log_end_offset) == (start, start)
            for name in disk.list(directory):
                disk.remove(f"{directory}/{name}")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        (b"2 5", b"3 5"),
        (b"2 5", b"2 6"),
        (b"0 0\n1 25\n2 50\n", b"0 0\n1 25\n2 5000\n"),
        (b"0 0\n1 25\n2 50\n", b"0 9000\n1 9001\n2 9002\n"),
        (b"0 0\n1 25\n2 50\n", b"0 0\n1 25\n2147483647 50\n"),
    ],
)
def test_contradicting_leader_epochs_are_rebuilt(
    disk: ForgetfulDisk, change: tuple[bytes, bytes], clean: bool
) -> None:
    log = new_log(disk)
    for at in range(75):
        append(log, b"%d" % at, epoch=at // 25)
    entries = log.epochs.entries
    assert entries == [(0, 0), (1, 25), (2, 50)]
    log.close(clean=clean)
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    data = disk.read_bytes(path)
    assert change[0] in data
    disk.replace_bytes(path, data.replace(*change))
    assert reopen(log, clean=clean).epochs.entries == entries
    assert disk.read_bytes(path) == data


def test_emptied_directory_is_an_empty_log(disk: ForgetfulDisk) -> None:
    log = log_with_segments(disk)
    for name in disk.list(DIRECTORY):
        disk.remove(f"{DIRECTORY}/{name}")
    again = reopen(log, log_start_offset=0)
    assert (again.log_end_offset, contents(again)) == (0, {})


def test_old_message_format_is_rejected_and_not_truncated(disk: ForgetfulDisk) -> None:
    log = new_log(disk)
    message = b"\1\0" + NOW_MS.to_bytes(8, "big") + b"\xff\xff\xff\xff\0\0\0\5hello"
    old = bytes(8) + (4 + len(message)).to_bytes(4, "big") + crc32(message).to_bytes(4, "big")
    old += message
    log.segments.active.log.append([old])
    with pytest.raises(StorageError, match="format 1"):
        reopen(log)
    assert disk.size(log.segments.active.log.path) == len(old)


# ---- producers


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("keeps_snapshots", [True, False])
def test_retry_is_recognised_after_restart(
    disk: ForgetfulDisk, clean: bool, keeps_snapshots: bool
) -> None:
    log = new_log(disk, SMALL)
    for at in range(39):
        produce(log, at, b"%d" % at * 20)
    sent = produce(log, 39, b"39" * 20)
    log.close(clean=clean)
    if not keeps_snapshots:
        snapshots.remove_snapshots(disk, DIRECTORY, lambda _: True)
    again = reopen(log, clean=clean)
    retried = produce(again, 39, b"39" * 20)
    assert retried.is_duplicate
    assert (retried.first_offset, retried.last_offset) == (sent.first_offset, sent.last_offset)
    assert again.log_end_offset == 40
    assert not produce(again, 40, b"next").is_duplicate


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("is_follower", [False, True], ids=["leader", "follower"])
def test_retry_is_recognised_after_restart_with_other_clock(
    disk: ForgetfulDisk, is_follower: bool, clean: bool
) -> None:
    """A follower that becomes leader recognises retries as well."""
    log = new_log(disk, SMALL)
    for at in range(20):
        produce(log, at, b"%d" % at * 20)
    if is_follower:
        copy = new_log(disk, SMALL, "/data/copy-0")
        for segment in log.segments:
            copy.append_as_follower(memoryview(segment.log.read(0, segment.size)))
        log = copy
    log.close(clean=clean)
    for days in (8, -8, 0):
        log = open_log(
            disk,
            log.directory,
            SMALL,
            was_clean_shutdown=clean,
            recovery_point=0,
            log_start_offset=0,
            now_ms=NOW_MS + days * 86_400_000,
        )
        log.expire_producers(1_000_000)
        log.expire_producers(1_000_000 + log.producer_expiration_ms - 1)
        retried = produce(log, 19, b"19" * 20)
        assert (retried.is_duplicate, retried.first_offset, log.log_end_offset) == (True, 19, 20)
        log.close(clean=clean)


def test_batch_lost_to_torn_write_may_be_sent_again(
    disk: ForgetfulDisk,
) -> None:
    log = new_log(disk)
    produce(log, 0, b"a")
    produce(log, 1, b"b")
    log.segments.active.log.truncate(log.segments.active.size - 1)
    again = reopen(log)
    info = produce(again, 1, b"b")
    assert (info.is_duplicate, info.first_offset) == (False, 1)


def test_flush_makes_snapshots_durable(disk: ForgetfulDisk) -> None:
    log = log_with_segments(disk)
    flush(log)
    after = disk.crash()
    assert set(snapshots.list_snapshots(after, DIRECTORY)) == set(log.segments.bases[1:])
    again = reopen(log, disk=after, recovery_point=log.recovery_point)
    assert observable_state(again) == observable_state(log)
