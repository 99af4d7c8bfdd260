"""Checks of `up` on a data directory before it starts anything there."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.brokers.data_directory import (
    absent_brokers_warning,
    broker_ids_in,
    check_registry,
    format_broker_ids,
)
from barnabas.cli.registry.source import zookeeper_connect
from barnabas.errors import ConfigError
from barnabas.metadata import znodes
from barnabas.model import BrokerId, ControllerEpoch, LeaderAndIsr, LeaderEpoch, TopicPartition
from barnabas.world.clock import SystemClock
from barnabas.world.registry.embedded import EmbeddedRegistry


def create_data(data: Path, *brokers: int, zookeeper: str | None = None) -> None:
    for broker in brokers:
        directory = data / f"broker-{broker}"
        directory.mkdir(parents=True)
        (directory / "meta.properties").write_text("version=0\n")
        if zookeeper:
            properties = f"broker.id={broker}\nzookeeper.connect={zookeeper}\n"
            (data / f"broker-{broker}.properties").write_text(properties)


def test_new_directory_fits_any_cluster(tmp_path: Path) -> None:
    for with_zookeeper in (False, True):
        check_registry(tmp_path / "new", with_zookeeper=with_zookeeper)
        check_registry(tmp_path, with_zookeeper=with_zookeeper)


def test_data_of_cluster_with_own_zookeeper_suggests_option(tmp_path: Path) -> None:
    create_data(tmp_path, 1, 2, zookeeper="127.0.0.1:2181")
    (tmp_path / "zookeeper").mkdir()
    with pytest.raises(ConfigError, match="with a ZooKeeper: add --with-zookeeper"):
        check_registry(tmp_path, with_zookeeper=False)
    check_registry(tmp_path, with_zookeeper=True)


def test_data_of_cluster_with_external_zookeeper_suggests_option(tmp_path: Path) -> None:
    create_data(tmp_path, 1, zookeeper="zk1:2181,zk2:2181/dev")
    assert zookeeper_connect(tmp_path) == "zk1:2181,zk2:2181/dev"
    with pytest.raises(ConfigError, match="add --zookeeper zk1:2181,zk2:2181/dev"):
        check_registry(tmp_path, with_zookeeper=False)


def test_data_without_zookeeper_is_rejected_with_zookeeper(tmp_path: Path) -> None:
    create_data(tmp_path, 1)
    (tmp_path / "registry").mkdir()
    with pytest.raises(ConfigError, match="without a ZooKeeper"):
        check_registry(tmp_path, with_zookeeper=True)
    check_registry(tmp_path, with_zookeeper=False)


def test_data_without_its_registry_is_rejected(tmp_path: Path) -> None:
    create_data(tmp_path, 1)
    check_registry(tmp_path, with_zookeeper=False)
    (tmp_path / "broker-1" / "meta.properties").write_text("broker.id=1\ncluster.id=c\n")
    with pytest.raises(ConfigError, match="belongs to a cluster whose registry is not in"):
        check_registry(tmp_path, with_zookeeper=False)
    check_registry(tmp_path, with_zookeeper=True)  # the brokers will compare the cluster ids


async def test_absent_brokers_reports_offline_partitions(tmp_path: Path) -> None:
    create_data(tmp_path, 1, 2, 3)
    assert broker_ids_in(tmp_path) == [1, 2, 3]
    registry = EmbeddedRegistry(str(tmp_path / "registry"), SystemClock())
    session = await registry.connect(6000)
    for path in (
        "/brokers",
        "/brokers/topics",
        "/brokers/topics/t",
        "/brokers/topics/t/partitions",
    ):
        await session.create(path)
    for number, in_sync in enumerate([(1, 2), (2,), (3, 2)]):
        partition = TopicPartition("t", number)
        state = LeaderAndIsr(
            leader=BrokerId(in_sync[0]),
            leader_epoch=LeaderEpoch(0),
            isr=tuple(map(BrokerId, in_sync)),
            controller_epoch=ControllerEpoch(1),
        )
        await session.create(znodes.partition_path(partition))
        await session.create(znodes.state_path(partition), znodes.encode_state(state))
    await registry.close()
    assert absent_brokers_warning(tmp_path, [1], None) == (
        "this data has brokers 1–3; 2 partitions are offline until they run: add --brokers 3"
    )
    assert absent_brokers_warning(tmp_path, [1, 2], None) == (
        "this data has brokers 1–3; some replicas are missing until they run: add --brokers 3"
    )
    assert absent_brokers_warning(tmp_path, [1, 2, 3, 4], None) is None


def test_consecutive_broker_ids_are_shown_as_range() -> None:
    assert format_broker_ids([1, 2, 3]) == "brokers 1–3"
    assert format_broker_ids([1, 3]) == "brokers 1, 3"
    assert format_broker_ids([2]) == "broker 2"
