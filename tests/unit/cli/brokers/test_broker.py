from __future__ import annotations

import logging
from pathlib import Path

import pytest

from barnabas.cli.brokers.broker import open_broker_registry
from barnabas.config.load import load_broker_config


@pytest.mark.parametrize(("replicas", "is_told"), [(None, True), ("2", True), ("1", False)])
async def test_a_broker_that_stays_alone_says_at_once_that_it_cannot_keep_groups(
    tmp_path: Path, replicas: str | None, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    factor = {} if replicas is None else {"offsets.topic.replication.factor": replicas}
    settings, _ = load_broker_config({"broker.id": "1", "log.dirs": f"{tmp_path}/logs", **factor})
    with caplog.at_level(logging.WARNING, "barnabas.broker"):
        registry = await open_broker_registry(settings)
    await registry.close()
    assert ("consumer groups cannot be used" in caplog.text) == is_told
    assert ("set it to 1" in caplog.text) == is_told
