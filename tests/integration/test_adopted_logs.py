"""Logs without a registry: with barnabas.adopt.logs, a copied data directory becomes topics again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from barnabas.errors import ErrorCode
from support.broker import BrokerProcess
from tests.compatibility.raw import Raw, recent_batch_of, values_in

ADOPT = {"barnabas.adopt.logs": "true"}


@pytest.fixture
def copied_logs(tmp_path: Path) -> tuple[Path, str]:
    """The log directory of a broker without its registry, like a copy of Kafka's, and the topic's id."""
    with BrokerProcess(tmp_path / "before") as broker:
        with Raw(broker.bootstrap_servers) as raw:
            topic_id = str(raw.create_topic("orders", partitions=2))
            raw.produce("orders", recent_batch_of(b"first"))
            raw.produce("orders", recent_batch_of(b"second"), partition=1)
        broker.stop()
        shutil.copytree(broker.log_dir, tmp_path / "data" / "broker-1")
    (tmp_path / "data" / "broker-1" / "meta.properties").unlink()
    return tmp_path / "data", topic_id


def test_adopted_logs_keep_topic_ids(copied_logs: tuple[Path, str]) -> None:
    data, topic_id = copied_logs
    for settings in (ADOPT, {}, ADOPT):
        with BrokerProcess(data, settings) as broker, Raw(broker.bootstrap_servers) as raw:
            assert str(raw.topic_id("orders")) == topic_id
            assert values_in(raw.fetch("orders", 0)) == [b"first"]
            assert raw.list_offset("orders", -1).leader_epoch == 0


def test_logs_become_stray_without_adoption_setting(copied_logs: tuple[Path, str]) -> None:
    data, _ = copied_logs
    with BrokerProcess(data) as broker, Raw(broker.bootstrap_servers) as raw:
        assert raw.fetch("orders", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(list((data / "broker-1").glob("orders-*-stray"))) == 2


def test_incomplete_topic_is_not_adopted(copied_logs: tuple[Path, str]) -> None:
    data, _ = copied_logs
    shutil.rmtree(data / "broker-1" / "orders-0")
    with BrokerProcess(data, ADOPT) as broker:
        with Raw(broker.bootstrap_servers) as raw:
            assert raw.fetch("orders", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "cannot adopt topic=orders" in broker.log()
