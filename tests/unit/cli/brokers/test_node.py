"""Checks of `barnabas node` before it starts a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.brokers.node import (
    check_directories,
    ids_without_rack,
    limit_cores,
    usable_cores,
)
from barnabas.client.view import BrokerView, ClusterView
from barnabas.cluster.node_settings import NodeBroker, derive_node_brokers
from barnabas.errors import ConfigError
from barnabas.model import BrokerId


def node_in(directory: Path, count: int) -> list[NodeBroker]:
    properties = {"broker.id": "11", "log.dirs": str(directory), "zookeeper.connect": "zk:2181"}
    return derive_node_brokers(properties, count, machine="rhine")[0]


def add_broker(directory: Path, broker_id: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "meta.properties").write_text(f"version=0\nbroker.id={broker_id}\n")


def test_logs_of_a_single_broker_are_not_hidden(tmp_path: Path) -> None:
    add_broker(tmp_path, 3)
    with pytest.raises(ConfigError, match=rf"stop it and move them to {tmp_path}/broker-3, or"):
        check_directories(node_in(tmp_path, 2))


def test_new_and_own_directories_are_accepted(tmp_path: Path) -> None:
    assert check_directories(node_in(tmp_path / "new", 2)) == []
    add_broker(tmp_path / "broker-11", 11)
    add_broker(tmp_path / "broker-12", 12)
    assert check_directories(node_in(tmp_path, 2)) == []


def test_data_of_brokers_outside_the_node_is_reported(tmp_path: Path) -> None:
    for broker_id in (11, 12, 13, 14):
        add_broker(tmp_path / f"broker-{broker_id}", broker_id)
    assert check_directories(node_in(tmp_path, 2)) == [
        f"{tmp_path} has data of brokers 13–14, which this node does not run: --brokers 4 runs them"
    ]


def test_quota_of_container_limits_cores() -> None:
    assert limit_cores(8, "max 100000") == 8
    assert limit_cores(8, "250000 100000") == 2
    assert limit_cores(2, "800000 100000") == 2
    assert limit_cores(8, "50000 100000") == 1
    assert limit_cores(8, "nonsense") == 8
    assert usable_cores() >= 1


def test_brokers_without_rack_are_found() -> None:
    first = BrokerView(id=BrokerId(1), host="h", port=1, rack="rhine")
    second = BrokerView(id=BrokerId(2), host="h", port=2)
    view = ClusterView(brokers={first.id: first, second.id: second})
    assert ids_without_rack(view) == [2]
