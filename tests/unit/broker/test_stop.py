"""A broker that ends tells nobody of a disk that breaks meanwhile: the end of its session says more."""

from __future__ import annotations

import asyncio
import logging

import pytest

from barnabas.errors import StorageError
from barnabas.storage.checkpoints import CLEAN_SHUTDOWN
from simulator.disk import ForgetfulDisk
from tests.unit.broker.test_start import Stand


class BreaksAtTheEnd(ForgetfulDisk):
    """It takes no mark of a clean end."""

    def replace_bytes(self, path: str, data: bytes, *, sync: bool = True) -> None:
        if path.endswith(CLEAN_SHUTDOWN):
            raise StorageError(path, "Input/output error")
        super().replace_bytes(path, data, sync=sync)


async def test_a_disk_that_breaks_while_a_broker_ends_is_said_once_and_nothing_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stand = Stand()
    stand.disk = BreaksAtTheEnd()
    try:
        broker = stand.broker()
        await broker.start()
        with caplog.at_level(logging.WARNING):
            await broker.stop()
            await asyncio.sleep(0)
        assert [record.name for record in caplog.records] == ["barnabas.storage.log_manager"]
        assert "Input/output error" in caplog.text
    finally:
        await stand.registry.close()
