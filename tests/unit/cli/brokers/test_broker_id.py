"""A broker without broker.id gets the id of its log directories, or a new one of the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.cli.brokers.broker_id import stored_broker_id, with_broker_id
from barnabas.config import BrokerConfig
from barnabas.config.load import load_broker_config
from barnabas.errors import ConfigError
from barnabas.world.clock import SystemClock
from barnabas.world.registry.embedded import EmbeddedRegistry


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[EmbeddedRegistry]:
    opened = EmbeddedRegistry(str(tmp_path / "registry"), SystemClock())
    await opened.open()
    yield opened
    await opened.close()


def settings(directory: Path, **properties: str) -> BrokerConfig:
    found, _ = load_broker_config({"log.dirs": str(directory), **properties})
    return found


async def test_new_ids_are_above_reserved_ids(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    first = await with_broker_id(settings(tmp_path / "a"), registry)
    second = await with_broker_id(settings(tmp_path / "b"), registry)
    assert (first.broker_id, second.broker_id) == (1001, 1002)
    assert first.node_id == 1001
    few = settings(tmp_path / "c", **{"reserved.broker.max.id": "5"})
    assert (await with_broker_id(few, registry)).broker_id == 8


async def test_stored_and_configured_ids_are_kept(
    registry: EmbeddedRegistry, tmp_path: Path
) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=7\ncluster.id=x\n")
    assert (await with_broker_id(settings(tmp_path), registry)).broker_id == 7
    configured = settings(tmp_path, **{"broker.id": "3"})
    assert await with_broker_id(configured, registry) is configured


def test_directories_of_different_brokers_are_rejected(tmp_path: Path) -> None:
    for broker in (1, 2):
        directory = tmp_path / str(broker)
        directory.mkdir()
        (directory / "meta.properties").write_text(f"broker.id={broker}\n")
    with pytest.raises(ConfigError, match=r"belong to different brokers: .*1 to 1, .*2 to 2"):
        stored_broker_id([str(tmp_path / "1"), str(tmp_path / "2")])
    assert stored_broker_id([str(tmp_path / "1"), str(tmp_path / "none")]) == 1
