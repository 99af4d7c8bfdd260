from __future__ import annotations

import asyncio
import threading
from random import Random

from barnabas.broker.maintenance import checkpoint
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
