"""Future logs: created next to a log in another directory, loaded by a start, and put in its place."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.config.topic import TopicConfig
from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.storage.checkpoints import CLEANED_TO, LOG_START, RECOVERY_POINT, read_offsets
from barnabas.storage.future_logs import (
    REPLACED,
    future_name,
    has_future_name,
    is_newer,
    parse_future_name,
)
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager
from barnabas.world.ports import Disk
from simulator.disk import ForgetfulDisk
from tests.unit.storage.builders import (
    NOW_MS,
    TOPIC_ID,
    append,
    contents,
    flush,
    forgetful_disk,
    open_log_manager,
    produce,
    settings,
)

A, B, C = "/data/a", "/data/b", "/data/c"
ORDERS = TopicPartition("orders", 0)
DASHED = TopicPartition("my-dashed.topic-3", 12)
SMALL = settings(segment_bytes=400)


def start_manager(disk: Disk, *directories: str, config: TopicConfig = SMALL) -> LogManager:
    return open_log_manager(
        disk,
        directories or (A, B),
        broker_id=1,
        cluster_id="c",
        config_of=lambda topic: config,
        random=Random(1),
        now_ms=NOW_MS,
    )


@pytest.fixture
def disk() -> ForgetfulDisk:
    return forgetful_disk()


def create_filled_log(manager: LogManager, count: int = 10) -> Log:
    log = manager.create_log(ORDERS, TOPIC_ID, SMALL, NOW_MS)
    for at in range(count):
        append(log, b"%d" % at * 50)
    log.high_watermark = count
    return log


def copy_all(log: Log, future: Log) -> None:
    while future.log_end_offset < log.log_end_offset:
        read = log.read(future.log_end_offset, 1 << 20, log.log_end_offset)
        (part,) = read.slices
        future.append_as_follower(
            memoryview(part.file.read(part.position, part.size)), now_ms=NOW_MS
        )


def begin_swap(disk: Disk) -> tuple[LogManager, Log, Log]:
    """Return a log in A and its complete future log in B."""
    manager = start_manager(disk)
    log = create_filled_log(manager)
    future = manager.create_future(ORDERS, B, NOW_MS)
    copy_all(log, future)
    return manager, log, future


def directories(disk: Disk, parent: str) -> list[str]:
    return [name for name in disk.list(parent) if disk.is_directory(f"{parent}/{name}")]


# ---- names


def test_future_name_is_parsed() -> None:
    name = future_name(DASHED, 255)
    assert name == "my-dashed.topic-3-12." + "0" * 30 + "ff-future"
    assert parse_future_name(name) == DASHED


@pytest.mark.parametrize(
    "name",
    ["orders-0", "orders-0-future", "orders.00ff-future", "-0.00ff-future", "orders-x.00ff-future"],
)
def test_other_name_is_no_future_log(name: str) -> None:
    assert parse_future_name(name) is None


def test_name_of_future_log_is_at_most_255_long() -> None:
    assert has_future_name(TopicPartition("x" * 213, 0))
    assert not has_future_name(TopicPartition("x" * 213, 10))
    assert len(future_name(TopicPartition("x" * 213, 0), 1)) == 255


# ---- create, load, delete


def test_future_log_begins_at_log_start(disk: ForgetfulDisk) -> None:
    manager = start_manager(disk)
    log = create_filled_log(manager)
    log.advance_log_start(4)
    future = manager.create_future(ORDERS, B, NOW_MS)
    assert (future.log_start_offset, future.log_end_offset) == (4, 4)
    assert future.topic_id == TOPIC_ID
    assert manager.logs == {ORDERS: log}
    copy_all(log, future)
    assert contents(future) == contents(log)


@pytest.mark.parametrize("clean", [True, False])
def test_start_loads_future_log(disk: ForgetfulDisk, clean: bool) -> None:
    manager, log, future = begin_swap(disk)
    expected = contents(log)
    assert contents(future) == expected
    if clean:
        manager.shutdown()
    else:
        manager.release()
    again = start_manager(disk)
    assert contents(again.logs[ORDERS]) == expected
    assert contents(again.futures[ORDERS]) == expected
    assert [info.future_sizes for info in again.describe()] == [
        {},
        {ORDERS: again.futures[ORDERS].size_bytes},
    ]


def test_second_future_log_is_deleted_at_start(disk: ForgetfulDisk) -> None:
    manager = start_manager(disk, A, B, C)
    create_filled_log(manager)
    future = manager.create_future(ORDERS, B, NOW_MS)
    manager.release()
    disk.make_directory(f"{C}/{future_name(ORDERS, 7)}")
    again = start_manager(disk, A, B, C)
    assert again.futures[ORDERS].directory == future.directory
    assert [name[-7:] for name in directories(disk, C)] == ["-delete"]


@pytest.mark.parametrize("reason", ["same directory", "other topic"])
def test_useless_future_log_is_deleted_at_start(disk: ForgetfulDisk, reason: str) -> None:
    manager = start_manager(disk)
    create_filled_log(manager)
    future = manager.create_future(ORDERS, B, NOW_MS)
    manager.release()
    if reason == "same directory":
        disk.rename(future.directory, f"{A}/{future_name(ORDERS, 7)}")
    else:
        disk.remove(f"{future.directory}/partition.metadata")
        disk.replace_bytes(
            f"{future.directory}/partition.metadata",
            b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n",
        )
    again = start_manager(disk)
    assert again.futures == {}
    assert len(again.pending_removals) == 1


def test_deletion_includes_future_log(disk: ForgetfulDisk) -> None:
    manager, _, _ = begin_swap(disk)
    manager.delete_log(ORDERS, NOW_MS)
    assert (manager.logs, manager.futures) == ({}, {})
    for parent in (A, B):
        (name,) = directories(disk, parent)
        assert name.endswith("-delete")
    due = NOW_MS + SMALL.file_delete_delay_ms
    assert [at for at, _ in manager.pending_removals] == [due, due]


def test_stray_log_loses_its_future_log(disk: ForgetfulDisk) -> None:
    manager, _, _ = begin_swap(disk)
    manager.rename_to_stray(ORDERS)
    assert [name[-6:] for name in directories(disk, A)] == ["-stray"]
    assert [name[-7:] for name in directories(disk, B)] == ["-delete"]


# ---- preferred directories


def test_preferred_directory_is_used_once(disk: ForgetfulDisk) -> None:
    manager = start_manager(disk)
    manager.prefer(ORDERS, B)
    assert manager.create_log(ORDERS, TOPIC_ID, SMALL).directory == f"{B}/orders-0"
    manager.delete_log(ORDERS, NOW_MS)
    assert manager.create_log(ORDERS, TOPIC_ID, SMALL).directory == f"{A}/orders-0"


def test_failed_directory_is_no_longer_preferred(disk: ForgetfulDisk) -> None:
    manager = start_manager(disk)
    manager.prefer(ORDERS, B)
    manager.mark_offline(B, StorageError(B, "broken"))
    assert manager.create_log(ORDERS, TOPIC_ID, SMALL).directory == f"{A}/orders-0"


def test_preferred_directories_are_limited(
    disk: ForgetfulDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.storage.log_manager.PREFERRED_MAX", 2)
    manager = start_manager(disk)
    partitions = [TopicPartition("orders", index) for index in range(3)]
    for partition in partitions:
        manager.prefer(partition, B)
    assert list(manager.preferred) == partitions[1:]


def test_future_logs_count_for_next_directory(disk: ForgetfulDisk) -> None:
    manager = start_manager(disk)
    create_filled_log(manager)
    manager.create_future(ORDERS, B, NOW_MS)
    manager.create_log(DASHED, TOPIC_ID, SMALL)
    other = manager.create_log(TopicPartition("other", 0), TOPIC_ID, SMALL)
    assert other.directory == f"{B}/other-0"


# ---- replace


def test_future_log_replaces_log(disk: ForgetfulDisk) -> None:
    manager, log, future = begin_swap(disk)
    produce(log, 0, b"produced")
    copy_all(log, future)
    log.begin_epoch(5)
    log.high_watermark = 9
    log.advance_log_start(3)
    log.cleaned_to = 2
    expected = contents(log)
    replaced = manager.replace_with_future(ORDERS, NOW_MS)
    assert replaced is future is manager.logs[ORDERS]
    assert manager.futures == {}
    assert future.directory == f"{B}/orders-0"
    assert directories(disk, B) == ["orders-0"]
    assert [name[-7:] for name in directories(disk, A)] == ["-delete"]
    assert contents(future) == expected
    assert (future.log_start_offset, future.watermark, future.log_end_offset) == (3, 9, 11)
    assert future.epochs.entries == log.epochs.entries
    assert future.cleaned_to == 2
    assert append(future, b"after", epoch=5).first_offset == 11
    assert produce(future, 0, b"produced").is_duplicate
    manager.release()
    again = start_manager(disk).logs[ORDERS]
    assert contents(again) == {**expected, 11: b"after"}
    assert again.log_start_offset == 3


def test_replaced_log_is_readable_until_its_removal(disk: ForgetfulDisk) -> None:
    manager, log, _ = begin_swap(disk)
    read = log.read(0, 100, log.log_end_offset)
    manager.replace_with_future(ORDERS, NOW_MS)
    (part,) = read.slices
    assert part.file.read(part.position, part.size)
    (due,) = manager.pop_due_removals(NOW_MS + SMALL.file_delete_delay_ms)
    assert due == log.directory
    with pytest.raises(StorageError):
        part.file.read(part.position, part.size)


def test_checkpoints_follow_replaced_log(disk: ForgetfulDisk) -> None:
    manager, log, _ = begin_swap(disk)
    log.high_watermark = 9
    log.advance_log_start(3)
    log.cleaned_to = 2
    for name in (LOG_START, CLEANED_TO, RECOVERY_POINT):
        manager.checkpoint(name)
    manager.replace_with_future(ORDERS, NOW_MS)
    manager.create_log(DASHED, TOPIC_ID, SMALL)
    for name, value in ((LOG_START, 3), (CLEANED_TO, 2)):
        assert read_offsets(disk, f"{B}/{name}").offsets == {ORDERS: value}
        assert read_offsets(disk, f"{A}/{name}").offsets == {}
    assert read_offsets(disk, f"{A}/{RECOVERY_POINT}").offsets == {}, "the new log has no line yet"


def test_flushed_records_are_flushed_after_replacement(disk: ForgetfulDisk) -> None:
    manager, log, future = begin_swap(disk)
    flush(log)
    assert future.recovery_point < log.recovery_point == 10
    manager.replace_with_future(ORDERS, NOW_MS)
    assert future.recovery_point == 10


@pytest.mark.parametrize("is_flushed", [True, False])
def test_power_loss_after_replacement_keeps_flushed_records(
    disk: ForgetfulDisk, is_flushed: bool
) -> None:
    for seed in range(20):
        disk = forgetful_disk()
        manager, log, future = begin_swap(disk)
        flush(log)
        if is_flushed:
            flush(future)
        expected = contents(log)
        manager.replace_with_future(ORDERS, NOW_MS)
        manager.release()
        again = start_manager(disk.crash(Random(seed)))
        assert contents(again.logs[ORDERS]) == expected


def crash_between_renames(
    disk: ForgetfulDisk, records: tuple[bytes, ...]
) -> dict[int, bytes | None]:
    """Leave two logs, of which the newer one is in B and has these `records` more. Return its contents."""
    manager, log, _ = begin_swap(disk)
    manager.replace_with_future(ORDERS, NOW_MS)
    for record in records:
        append(manager.logs[ORDERS], record)
    expected = contents(manager.logs[ORDERS])
    manager.release()
    disk.rename(log.directory, f"{A}/orders-0")
    return expected


@pytest.mark.parametrize("records", [(), (b"after",)])
def test_move_is_completed_after_crash_between_renames(
    disk: ForgetfulDisk, records: tuple[bytes, ...]
) -> None:
    expected = crash_between_renames(disk, records)
    again = start_manager(disk)
    assert again.offline == {}
    assert again.logs[ORDERS].directory == f"{B}/orders-0"
    assert contents(again.logs[ORDERS]) == expected
    (name,) = directories(disk, A)
    assert name.endswith("-delete")
    assert list(again.pop_due_removals(NOW_MS)) == [f"{A}/{name}"]


def test_copied_log_becomes_stray(disk: ForgetfulDisk) -> None:
    expected = crash_between_renames(disk, (b"after",))
    disk.remove(f"{A}/orders-0/{REPLACED}")
    again = start_manager(disk)
    assert contents(again.logs[ORDERS]) == expected
    assert [name[-6:] for name in directories(disk, A)] == ["-stray"]


def test_move_without_mark_succeeds(disk: ForgetfulDisk) -> None:
    manager, _, future = begin_swap(disk)
    disk.fails = f"{A}/orders-0/{REPLACED}"
    manager.replace_with_future(ORDERS, NOW_MS)
    assert manager.logs == {ORDERS: future}


def test_logs_of_two_topics_take_directory_offline(disk: ForgetfulDisk) -> None:
    manager = start_manager(disk)
    create_filled_log(manager)
    manager.release()
    Log.create(disk, f"{B}/orders-0", SMALL, topic_id=None, now_ms=NOW_MS)
    again = start_manager(disk)
    assert list(again.offline) == [B]
    assert again.logs[ORDERS].directory == f"{A}/orders-0"


def test_newer_log_has_later_epoch_or_more_records(disk: ForgetfulDisk) -> None:
    manager, log, future = begin_swap(disk)
    assert not is_newer(future, log)
    assert not is_newer(log, future)
    append(log, b"more")
    assert is_newer(log, future)
    append(future, b"other leader", epoch=3)
    assert is_newer(future, log)
    manager.release()


# ---- failures


def test_failed_target_leaves_log_in_place(disk: ForgetfulDisk) -> None:
    manager, log, _ = begin_swap(disk)
    offline: list[TopicPartition] = []
    manager.on_offline = lambda partitions, error: offline.extend(partitions)
    manager.mark_offline(B, StorageError(B, "broken"))
    assert manager.futures == {}
    assert manager.logs == {ORDERS: log}
    assert offline == []
    assert append(log, b"after").first_offset == 10


def test_failed_source_takes_current_log_offline(disk: ForgetfulDisk) -> None:
    manager, _, future = begin_swap(disk)
    offline: list[TopicPartition] = []
    manager.on_offline = lambda partitions, error: offline.extend(partitions)
    manager.mark_offline(A, StorageError(A, "broken"))
    assert offline == [ORDERS]
    assert manager.futures == {ORDERS: future}


def test_source_that_fails_during_replacement_goes_offline_alone(
    disk: ForgetfulDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, log, future = begin_swap(disk)
    expected = contents(log)
    rename = disk.rename

    def fail_in_source(source: str, target: str) -> None:
        if source.startswith(A):
            raise StorageError(source, "broken")
        rename(source, target)

    monkeypatch.setattr(disk, "rename", fail_in_source)
    assert manager.replace_with_future(ORDERS, NOW_MS) is future
    assert list(manager.offline) == [A]
    assert contents(manager.logs[ORDERS]) == expected
