from __future__ import annotations

import asyncio
import threading
from random import Random

import pytest

from barnabas.broker.maintenance import checkpoint, purge
from barnabas.errors import StorageError
from barnabas.storage.log_manager import LogManager
from simulator.disk import ForgetfulDisk

A, B = "/data/a", "/data/b"


class SlowDisk(ForgetfulDisk):
    """Files get their names when the test says so."""

    def __init__(self) -> None:
        super().__init__(now_ms=lambda: 0)
        self.asked, self.may_write = threading.Event(), threading.Event()
        self.broken: set[str] = set()

    def replace_bytes(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self.asked.set()
        assert self.may_write.wait(30)
        if path.rpartition("/")[0] in self.broken:
            raise StorageError(path, "broken")
        super().replace_bytes(path, data, sync=sync)


async def test_a_disk_that_is_busy_keeps_nobody_waiting_for_a_checkpoint() -> None:
    disk = SlowDisk()
    for directory in (A, B):
        disk.make_directory(directory)
    logs = LogManager(disk, [A, B], random=Random(1))
    written = asyncio.create_task(checkpoint(logs, logs.high_watermarks))
    await asyncio.to_thread(disk.asked.wait, 30)
    assert not disk.exists(f"{A}/replication-offset-checkpoint")
    disk.broken = {A}
    disk.may_write.set()
    await written
    assert list(logs.offline) == [A]
    assert disk.read_bytes(f"{B}/replication-offset-checkpoint") == b"0\n0\n"


class HeldTree(ForgetfulDisk):
    """A directory is removed when the test says so."""

    def __init__(self) -> None:
        super().__init__(now_ms=lambda: 0)
        self.asked, self.may_remove = threading.Event(), threading.Event()
        self.is_broken = False

    def remove_tree(self, path: str) -> None:
        self.asked.set()
        assert self.may_remove.wait(30)
        if self.is_broken:
            raise StorageError(path, "broken")
        super().remove_tree(path)


class StandingClock:
    def now_ms(self) -> int:
        return 60_000


@pytest.fixture
def held() -> HeldTree:
    disk = HeldTree()
    for name in ("orders-0.1-delete", "orders-1.2-delete"):
        disk.make_directory(f"{A}/{name}")
    return disk


def doomed_logs(disk: HeldTree) -> LogManager:
    logs = LogManager(disk, [A], random=Random(1))
    logs.pending_removals = [(60_000, f"{A}/orders-0.1-delete"), (60_001, f"{A}/orders-1.2-delete")]
    return logs


async def test_large_files_keep_nobody_waiting_while_they_are_removed(held: HeldTree) -> None:
    logs = doomed_logs(held)
    removed = asyncio.create_task(purge(logs, StandingClock()))
    await asyncio.to_thread(held.asked.wait, 30)
    held.may_remove.set()
    await removed
    assert held.list(A) == ["orders-1.2-delete"]
    assert logs.pending_removals == [(60_001, f"{A}/orders-1.2-delete")]
    assert not logs.offline


async def test_a_directory_that_cannot_be_removed_is_on_a_broken_disk(held: HeldTree) -> None:
    logs = doomed_logs(held)
    held.is_broken = True
    held.may_remove.set()
    await purge(logs, StandingClock())
    assert list(logs.offline) == [A]


async def test_who_stops_waits_for_the_removal_under_way(held: HeldTree) -> None:
    logs = doomed_logs(held)
    removed = asyncio.create_task(purge(logs, StandingClock()))
    await asyncio.to_thread(held.asked.wait, 30)
    removed.cancel()
    await asyncio.wait([removed], timeout=0.05)
    assert not removed.done()
    held.may_remove.set()
    await asyncio.wait([removed])
    assert removed.cancelled()
    assert held.list(A) == ["orders-1.2-delete"]
