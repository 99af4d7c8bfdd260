from __future__ import annotations

import logging
from pathlib import Path

import pytest

from barnabas.cli.brokers.broker import open_broker_registry
from barnabas.config.load import load_broker_config


@pytest.mark.parametrize(("replicas", "is_warned"), [(None, True), ("2", True), ("1", False)])
async def test_single_broker_warns_about_offsets_replication_factor(
    tmp_path: Path, replicas: str | None, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    factor = {} if replicas is None else {"offsets.topic.replication.factor": replicas}
    settings, _ = load_broker_config({"broker.id": "1", "log.dirs": f"{tmp_path}/logs", **factor})
    with caplog.at_level(logging.WARNING, "barnabas.broker"):
        registry = await open_broker_registry(settings)
    await registry.close()
    assert ("consumer groups cannot be used" in caplog.text) == is_warned
    assert ("set it to 1" in caplog.text) == is_warned
