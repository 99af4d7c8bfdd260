from __future__ import annotations

import asyncio
import threading
from random import Random

import pytest

from barnabas.broker.maintenance import checkpoint, purge
from barnabas.errors import StorageError
from barnabas.storage.checkpoints import HIGH_WATERMARK
from barnabas.storage.log_manager import LogManager
from simulator.disk import ForgetfulDisk

A, B = "/data/a", "/data/b"


class SlowDisk(ForgetfulDisk):
    """Disk that blocks every file replacement until the test allows it."""

    def __init__(self) -> None:
        super().__init__(now_ms=lambda: 0)
        self.has_started, self.may_write = threading.Event(), threading.Event()
        self.broken: set[str] = set()

    def replace_bytes(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self.has_started.set()
        assert self.may_write.wait(30)
        if path.rpartition("/")[0] in self.broken:
            raise StorageError(path, "broken")
        super().replace_bytes(path, data, sync=sync)


async def test_slow_disk_does_not_block_the_loop_during_checkpoint() -> None:
    disk = SlowDisk()
    for directory in (A, B):
        disk.make_directory(directory)
    logs = LogManager(disk, [A, B], random=Random(1))
    written = asyncio.create_task(checkpoint(logs, HIGH_WATERMARK))
    await asyncio.to_thread(disk.has_started.wait, 30)
    assert not disk.exists(f"{A}/replication-offset-checkpoint")
    disk.broken = {A}
    disk.may_write.set()
    await written
    assert list(logs.offline) == [A]
    assert disk.read_bytes(f"{B}/replication-offset-checkpoint") == b"0\n0\n"


class SlowRemovalDisk(ForgetfulDisk):
    """Disk that blocks the removal of a directory until the test allows it."""

    def __init__(self) -> None:
        super().__init__(now_ms=lambda: 0)
        self.has_started, self.may_remove = threading.Event(), threading.Event()
        self.is_broken = False

    def remove_tree(self, path: str) -> None:
        self.has_started.set()
        assert self.may_remove.wait(30)
        if self.is_broken:
            raise StorageError(path, "broken")
        super().remove_tree(path)


class FixedClock:
    def now_ms(self) -> int:
        return 60_000


@pytest.fixture
def slow_disk() -> SlowRemovalDisk:
    disk = SlowRemovalDisk()
    for name in ("orders-0.1-delete", "orders-1.2-delete"):
        disk.make_directory(f"{A}/{name}")
    return disk


def logs_to_purge(disk: SlowRemovalDisk) -> LogManager:
    logs = LogManager(disk, [A], random=Random(1))
    logs.pending_removals = [(60_000, f"{A}/orders-0.1-delete"), (60_001, f"{A}/orders-1.2-delete")]
    return logs


async def test_removal_of_directories_does_not_block_the_loop(slow_disk: SlowRemovalDisk) -> None:
    logs = logs_to_purge(slow_disk)
    removed = asyncio.create_task(purge(logs, FixedClock()))
    await asyncio.to_thread(slow_disk.has_started.wait, 30)
    slow_disk.may_remove.set()
    await removed
    assert slow_disk.list(A) == ["orders-1.2-delete"]
    assert logs.pending_removals == [(60_001, f"{A}/orders-1.2-delete")]
    assert not logs.offline


async def test_failed_removal_takes_directory_offline(slow_disk: SlowRemovalDisk) -> None:
    logs = logs_to_purge(slow_disk)
    slow_disk.is_broken = True
    slow_disk.may_remove.set()
    await purge(logs, FixedClock())
    assert list(logs.offline) == [A]


async def test_cancelled_purge_waits_for_removal_in_progress(slow_disk: SlowRemovalDisk) -> None:
    logs = logs_to_purge(slow_disk)
    removed = asyncio.create_task(purge(logs, FixedClock()))
    await asyncio.to_thread(slow_disk.has_started.wait, 30)
    removed.cancel()
    await asyncio.wait([removed], timeout=0.05)
    assert not removed.done()
    slow_disk.may_remove.set()
    await asyncio.wait([removed])
    assert removed.cancelled()
    assert slow_disk.list(A) == ["orders-1.2-delete"]
