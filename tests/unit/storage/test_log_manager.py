from __future__ import annotations

import logging
import shutil
from pathlib import Path
from random import Random

import pytest

from barnabas.config.topic import TopicConfig
from barnabas.errors import DirectoryLocked, OutOfSpace, StorageError
from barnabas.model import TopicPartition
from barnabas.storage.checkpoints import HIGH_WATERMARK, LOG_START, RECOVERY_POINT
from barnabas.storage.log_manager import LogManager, parse_directory_name
from barnabas.world.disk import RealDisk
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

A, B = "/data/a", "/data/b"
ORDERS = TopicPartition("orders", 0)
DASHED = TopicPartition("my-dashed.topic-3", 12)
SMALL = settings(segment_bytes=400)


def start_manager(
    disk: Disk, *directories: str, config: TopicConfig = SMALL, seed: int = 1
) -> LogManager:
    return open_log_manager(
        disk,
        directories or (A,),
        broker_id=1,
        cluster_id="c",
        config_of=lambda topic: config,
        random=Random(seed),
        now_ms=NOW_MS,
    )


@pytest.fixture
def disk() -> ForgetfulDisk:
    return forgetful_disk()


@pytest.mark.parametrize("clean", [True, False])
def test_logs_are_reopened_with_their_offsets(disk: ForgetfulDisk, clean: bool) -> None:
    manager = start_manager(disk)
    for partition in (ORDERS, DASHED):
        log = manager.create_log(partition, TOPIC_ID, SMALL, NOW_MS)
        for at in range(10):
            append(log, b"%d" % at * 50)
        log.high_watermark = 8
        log.advance_log_start(3)
    expected = contents(manager.logs[ORDERS])
    if clean:
        manager.shutdown()
    else:
        manager.checkpoint(HIGH_WATERMARK)
        manager.checkpoint(LOG_START)
        manager.release()
    assert disk.exists(f"{A}/.kafka_cleanshutdown") == clean
    again = start_manager(disk)
    assert not disk.exists(f"{A}/.kafka_cleanshutdown")
    assert set(again.logs) == {ORDERS, DASHED}
    log = again.logs[ORDERS]
    assert contents(log) == expected
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (3, 8, 10)
    assert log.topic_id == TOPIC_ID
    assert log.recovery_point == (10 if clean else 3)


def test_number_of_loaded_logs_is_logged_per_directory(
    disk: ForgetfulDisk, caplog: pytest.LogCaptureFixture
) -> None:
    manager = start_manager(disk, A, B)
    for index in range(3):
        manager.create_log(TopicPartition("orders", index), TOPIC_ID, SMALL, NOW_MS)
    manager.shutdown()
    with caplog.at_level(logging.INFO):
        start_manager(disk, A, B)
    assert f"path={A} logs=2" in caplog.text
    assert f"path={B} logs=1" in caplog.text


def test_directory_names_are_parsed_from_the_right() -> None:
    assert parse_directory_name("my-dashed.topic-3-12") == DASHED
    assert parse_directory_name("orders-0") == ORDERS
    for name in ("orders", "-0", "orders-x", "orders-0.abc-stray", "orders-0.abc-future", "x--1.5"):
        assert parse_directory_name(name) is None


def test_foreign_files_and_directories_are_ignored(
    disk: ForgetfulDisk, caplog: pytest.LogCaptureFixture
) -> None:
    start_manager(disk).shutdown()
    disk.make_directory(f"{A}/lost+found")
    disk.make_directory(f"{A}/orders-0.{'0' * 32}-stray")
    disk.replace_bytes(f"{A}/README", b"hello")
    manager = start_manager(disk)
    assert manager.logs == {}
    assert "lost+found" in caplog.text
    assert disk.is_directory(f"{A}/lost+found")


def test_deleted_log_is_renamed_and_removed_later(disk: ForgetfulDisk) -> None:
    manager = start_manager(disk)
    append(manager.create_log(ORDERS, TOPIC_ID, SMALL, NOW_MS), b"a")
    manager.delete_log(ORDERS, NOW_MS)
    assert manager.get(ORDERS) is None
    (name,) = [name for name in disk.list(A) if disk.is_directory(f"{A}/{name}")]
    assert name.startswith("orders-0.")
    assert name.endswith("-delete")
    assert len(name) == len("orders-0.") + 32 + len("-delete")
    assert list(manager.pop_due_removals(NOW_MS + 59_999)) == []
    again = manager.create_log(ORDERS, TOPIC_ID, SMALL, NOW_MS)
    assert again.log_end_offset == 0, "the name can be used again"
    assert list(manager.pop_due_removals(NOW_MS + 60_000)) == [f"{A}/{name}"]
    assert list(manager.pop_due_removals(NOW_MS + 60_000)) == [], "each directory is returned once"
    manager.delete_log(ORDERS, NOW_MS)
    manager.release()
    restarted = start_manager(disk)
    assert restarted.logs == {}
    left = [f"{A}/{name}" for name in disk.list(A) if name.endswith("-delete")]
    assert len(left) == 2
    assert list(restarted.pop_due_removals(NOW_MS)) == left


def test_long_name_fits_when_deleted(tmp_path: Path) -> None:
    manager = start_manager(RealDisk(), str(tmp_path))
    long = TopicPartition("t" * 249, 7)
    manager.create_log(long, TOPIC_ID, SMALL, NOW_MS)
    manager.delete_log(long, NOW_MS)
    manager.release()


def test_stray_log_is_not_opened(disk: ForgetfulDisk) -> None:
    manager = start_manager(disk)
    append(manager.create_log(ORDERS, TOPIC_ID, SMALL, NOW_MS), b"a")
    manager.rename_to_stray(ORDERS)
    manager.shutdown()
    assert start_manager(disk).logs == {}
    assert any(name.endswith("-stray") for name in disk.list(A))


def test_new_log_goes_to_directory_with_fewest_logs(disk: ForgetfulDisk) -> None:
    manager = start_manager(disk, A, B)
    for index in range(6):
        manager.create_log(TopicPartition("t", index), TOPIC_ID, SMALL, NOW_MS)
    assert [len(info.sizes) for info in manager.describe()] == [3, 3]


def test_locked_directory_or_other_broker_id_fails_start(disk: ForgetfulDisk) -> None:
    manager = start_manager(disk)
    with pytest.raises(DirectoryLocked):
        start_manager(disk)
    manager.shutdown()
    with pytest.raises(StorageError, match="broker"):
        open_log_manager(
            disk,
            [A],
            broker_id=2,
            cluster_id="c",
            config_of=lambda _: SMALL,
            random=Random(1),
            now_ms=NOW_MS,
        )
    start_manager(disk)


def test_offline_directory_does_not_affect_others(disk: ForgetfulDisk) -> None:
    manager = start_manager(disk, A, B)
    for index in range(4):
        append(manager.create_log(TopicPartition("t", index), TOPIC_ID, SMALL, NOW_MS), b"a")
    manager.shutdown()
    manager = start_manager(disk, A, B)
    offline: list[TopicPartition] = []
    manager.on_offline = lambda partitions, error: offline.extend(partitions)
    disk.fails = B
    manager.checkpoint(HIGH_WATERMARK)
    assert len(offline) == 2
    assert set(manager.offline) == {B}
    assert len(manager.logs) == 2
    infos = {info.path: info for info in manager.describe()}
    assert infos[A].error is None
    assert infos[B].error is not None
    manager.create_log(TopicPartition("t", 9), TOPIC_ID, SMALL, NOW_MS)
    manager.shutdown()
    disk.fails = None
    assert disk.exists(f"{A}/.kafka_cleanshutdown")
    assert not disk.exists(f"{B}/.kafka_cleanshutdown"), "an offline directory is not marked clean"
    assert len(start_manager(disk, A, B).logs) == 5


def test_broken_directory_at_start_is_offline(
    disk: ForgetfulDisk,
) -> None:
    start_manager(disk, A, B).shutdown()
    disk.make_directory(f"{B}/orders-0")
    disk.fails = f"{B}/orders-0"
    manager = start_manager(disk, A, B)
    assert set(manager.offline) == {B}
    manager.shutdown()
    with pytest.raises(StorageError):
        start_manager(disk, B)
    disk.fails = None
    start_manager(disk, B)


def test_full_disk_at_shutdown_is_not_marked_clean(disk: ForgetfulDisk) -> None:
    manager = start_manager(disk)
    log = manager.create_log(ORDERS, TOPIC_ID, SMALL, NOW_MS)
    append(log, b"a")
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(OutOfSpace):
        append(log, b"b")
    manager.shutdown()
    assert not disk.exists(f"{A}/.kafka_cleanshutdown")
    disk.capacity_bytes = None
    assert contents(start_manager(disk).logs[ORDERS]) == {0: b"a"}


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
    ],
)
@pytest.mark.parametrize("damage", [b"", b"garbage\n\0", b"0\n99\norders 0 7\n", None])
def test_lost_checkpoint_loses_no_record(
    disk: ForgetfulDisk, name: str, damage: bytes | None
) -> None:
    manager = start_manager(disk)
    log = manager.create_log(ORDERS, TOPIC_ID, SMALL, NOW_MS)
    for at in range(20):
        append(log, b"%d" % at * 50)
    expected = contents(log)
    flush(log)
    manager.shutdown()
    disk.remove(f"{A}/.kafka_cleanshutdown")
    if damage is None:
        disk.remove(f"{A}/{name}")
    else:
        disk.replace_bytes(f"{A}/{name}", damage)
    assert contents(start_manager(disk).logs[ORDERS]) == expected


def test_truncation_is_checkpointed_at_once(disk: ForgetfulDisk) -> None:
    manager = start_manager(disk)
    log = manager.create_log(ORDERS, TOPIC_ID, SMALL, NOW_MS)
    for at in range(20):
        append(log, b"%d" % at * 50)
    flush(log)
    manager.checkpoint(RECOVERY_POINT)
    log.truncate_to(5)
    assert b"orders 0 5\n" in disk.crash().read_bytes(f"{A}/recovery-point-offset-checkpoint")


def test_retention_runs_over_all_logs(disk: ForgetfulDisk) -> None:
    config = settings(segment_bytes=400, retention_ms=1000, file_delete_delay_ms=0)
    manager = start_manager(disk, config=config)
    for index in range(3):
        log = manager.create_log(TopicPartition("t", index), TOPIC_ID, config, NOW_MS)
        for at in range(10):
            produce(log, at, b"x" * 100)
        log.high_watermark = 10
    logs = list(manager.logs.values())
    assert sum(log.delete_old_segments(NOW_MS) for log in logs) == 0
    assert sum(log.delete_old_segments(NOW_MS + 2000) for log in logs) > 10
    list(manager.purge(NOW_MS + 2000))
    assert sum(size for info in manager.describe() for size in info.sizes.values()) == 0
    assert all(len(log.producers.by_id) == 1 for log in manager.logs.values())


def test_copied_log_directory_opens_elsewhere(tmp_path: Path) -> None:
    disk = RealDisk()
    here, there = tmp_path / "here", tmp_path / "there"
    manager = start_manager(disk, str(here))
    log = manager.create_log(ORDERS, TOPIC_ID, SMALL, NOW_MS)
    for at in range(50):
        produce(log, at, b"%d" % at * 20)
    expected = contents(log)
    shutil.copytree(here, there)
    manager.shutdown()
    shutil.rmtree(here)
    copied = start_manager(disk, str(there))
    assert contents(copied.logs[ORDERS]) == expected
    assert produce(copied.logs[ORDERS], 49, b"49" * 20).is_duplicate
    copied.shutdown()
    disk.close()


def test_clean_restart_of_many_partitions_needs_few_descriptors(tmp_path: Path) -> None:
    disk = RealDisk(descriptors=32)
    manager = start_manager(disk, str(tmp_path))
    for index in range(100):
        log = manager.create_log(TopicPartition("t", index), TOPIC_ID, SMALL, NOW_MS)
        append(log, b"%d" % index)
    assert len(disk.open_files) <= 32
    manager.shutdown()
    again = start_manager(disk, str(tmp_path))
    for index in range(100):
        assert contents(again.logs[TopicPartition("t", index)]) == {0: b"%d" % index}
    again.shutdown()
    disk.close()
