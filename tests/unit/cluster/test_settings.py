"""Defaults of a local cluster for its brokers, unless settings override them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.cli.brokers.processes import BrokerProcesses
from barnabas.cluster.in_process import InProcessCluster
from barnabas.config import BrokerConfig
from barnabas.config.load import load_broker_config
from barnabas.errors import ConfigError

ConfigOf = Callable[[Path, int, dict[str, str]], BrokerConfig]


def in_process_config(data: Path, brokers: int, settings: dict[str, str]) -> BrokerConfig:
    return InProcessCluster(data, brokers=brokers, settings=settings).brokers[1].config


def subprocess_config(data: Path, brokers: int, settings: dict[str, str]) -> BrokerConfig:
    processes = BrokerProcesses(data, "127.0.0.1:2181", brokers=brokers, settings=settings)
    return load_broker_config(processes.properties(1, 9092))[0]


@pytest.mark.parametrize("config_of", [in_process_config, subprocess_config])
@pytest.mark.parametrize(("brokers", "replicas"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_offsets_topic_fits_any_number_of_brokers(
    tmp_path: Path, config_of: ConfigOf, brokers: int, replicas: int
) -> None:
    config = config_of(tmp_path, brokers, {})
    assert config.offsets_topic_replication_factor == replicas
    assert config.group_initial_rebalance_delay_ms == 0


@pytest.mark.parametrize("config_of", [in_process_config, subprocess_config])
@pytest.mark.parametrize(
    ("brokers", "replicas", "min_isr"), [(1, 1, 1), (2, 2, 2), (3, 3, 2), (5, 3, 2)]
)
def test_transaction_state_fits_any_number_of_brokers(
    tmp_path: Path, config_of: ConfigOf, brokers: int, replicas: int, min_isr: int
) -> None:
    config = config_of(tmp_path, brokers, {})
    assert config.transaction_state_log_replication_factor == replicas
    assert config.transaction_state_log_min_isr == min_isr


@pytest.mark.parametrize("config_of", [in_process_config, subprocess_config])
def test_explicit_settings_override_cluster_defaults(tmp_path: Path, config_of: ConfigOf) -> None:
    settings = {"offsets.topic.replication.factor": "1", "group.initial.rebalance.delay.ms": "500"}
    config = config_of(tmp_path, 3, settings)
    assert config.offsets_topic_replication_factor == 1
    assert config.group_initial_rebalance_delay_ms == 500


def test_single_broker_has_kafka_defaults() -> None:
    config, _ = load_broker_config({})
    assert config.offsets_topic_replication_factor == 3
    assert config.group_initial_rebalance_delay_ms == 3000


@pytest.mark.parametrize("config_of", [in_process_config, subprocess_config])
def test_data_path_with_a_comma_is_rejected_unless_log_dirs_are_set(
    tmp_path: Path, config_of: ConfigOf
) -> None:
    data = tmp_path / "a,b"
    with pytest.raises(ConfigError) as caught:
        config_of(data, 1, {})
    assert str(caught.value) == (
        f"log.dirs: a comma separates directories; '{data}' has one: choose another path"
    )
    directories = [str(tmp_path / name) for name in ("a", "b")]
    config = config_of(data, 1, {"log.dirs": ",".join(directories)})
    assert list(config.log_dirs) == directories
