"""A disk that breaks during shutdown is only logged: the end of the session tells the controller."""

from __future__ import annotations

import asyncio
import logging

import pytest

from barnabas.errors import StorageError
from barnabas.storage.checkpoints import CLEAN_SHUTDOWN
from simulator.disk import ForgetfulDisk
from tests.unit.broker.test_start import BrokerStand


class FailingMarkerDisk(ForgetfulDisk):
    """Disk that fails to write the clean shutdown marker."""

    def replace_bytes(self, path: str, data: bytes, *, sync: bool = True) -> None:
        if path.endswith(CLEAN_SHUTDOWN):
            raise StorageError(path, "Input/output error")
        super().replace_bytes(path, data, sync=sync)


async def test_disk_failure_during_shutdown_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stand = BrokerStand()
    stand.disk = FailingMarkerDisk()
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
