"""Text printed once a cluster or a ZooKeeper is up: commands to paste, lines of at most 100
columns.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.brokers.up import InThisProcess, cluster_banner, parse_topic_option
from barnabas.cli.terminal.output import up_line
from barnabas.cli.zookeeper import zookeeper_banner
from barnabas.cluster.in_process import InProcessCluster
from barnabas.cluster.zookeeper_servers import ZooKeeperServers
from barnabas.errors import ConfigError

DATA = Path("/home/user/projects/streaming/a-cluster-of-mine/barnabas-data")


@pytest.mark.parametrize("brokers", [1, 3, 12])
def test_greeting_fits_100_columns(brokers: int) -> None:
    text = cluster_banner(
        InThisProcess(InProcessCluster(DATA, brokers=brokers, port=19092)), "greetings"
    )
    assert [line for line in text.splitlines() if len(line) > 100] == []
    for number in range(brokers):
        assert f"127.0.0.1:{19092 + number}" in text


def test_long_command_is_continued_with_backslash() -> None:
    text = cluster_banner(InThisProcess(InProcessCluster(DATA)), "greetings")
    assert f"barnabas registry ls /brokers/topics \\\n              --data {DATA}\n" in text


def test_greeting_of_three_zookeepers_fits_100_columns() -> None:
    servers = ZooKeeperServers(DATA, 3, 12181)
    text = zookeeper_banner(servers)
    assert [line for line in text.splitlines() if len(line) > 100] == []
    assert f"--override zookeeper.connect={servers.connect_string}" in text


def test_is_up_is_one_line_if_it_fits() -> None:
    assert up_line("Barnabas is up: 1 broker", "h:1", "d") == (
        "Barnabas is up: 1 broker at h:1, data in d"
    )
    assert up_line("Barnabas is up: 1 broker", "h:1", "d" * 90) == (
        f"Barnabas is up: 1 broker at h:1\n  data in {'d' * 90}"
    )


def test_topic_option_has_optional_counts() -> None:
    found = [parse_topic_option(text) for text in ("orders", "orders:6", "orders:6:2")]
    assert [(each.name, each.partitions, each.replication_factor) for each in found] == [
        ("orders", -1, -1), ("orders", 6, -1), ("orders", 6, 2),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["orders:0", "orders:6:0", "orders:6:2:1", "orders:x", "orders:"])
def test_wrong_topic_option_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_topic_option(text)
    assert str(caught.value) == (
        f"--topic: '{text}' is not NAME[:PARTITIONS[:REPLICAS]], as in orders:6:1"
    )
