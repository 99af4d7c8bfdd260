"""What is printed once a cluster or a ZooKeeper is up: lines to paste, none too long to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.brokers.up import InThisProcess, cluster_banner
from barnabas.cli.terminal.output import up_line
from barnabas.cli.zookeeper import zookeeper_banner
from barnabas.cluster.in_process import InProcessCluster
from barnabas.cluster.zookeeper_servers import ZooKeeperServers

DATA = Path("/home/somebody/projects/streaming/a-cluster-of-mine/barnabas-data")


@pytest.mark.parametrize("brokers", [1, 3, 12])
def test_every_line_fits_however_many_brokers_there_are(brokers: int) -> None:
    text = cluster_banner(
        InThisProcess(InProcessCluster(DATA, brokers=brokers, port=19092)), "greetings"
    )
    assert [line for line in text.splitlines() if len(line) > 100] == []
    for number in range(brokers):
        assert f"127.0.0.1:{19092 + number}" in text


def test_a_command_that_does_not_fit_is_still_one_command() -> None:
    text = cluster_banner(InThisProcess(InProcessCluster(DATA)), "greetings")
    assert f"barnabas registry ls /brokers/topics \\\n              --data {DATA}\n" in text


def test_the_greeting_of_a_zookeeper_of_three_fits() -> None:
    servers = ZooKeeperServers(DATA, 3, 12181)
    text = zookeeper_banner(servers)
    assert [line for line in text.splitlines() if len(line) > 100] == []
    assert f"--override zookeeper.connect={servers.connect_string}" in text


def test_where_it_fits_it_is_one_line() -> None:
    assert up_line("Barnabas is up: 1 broker", "h:1", "d") == (
        "Barnabas is up: 1 broker at h:1, data in d"
    )
    assert up_line("Barnabas is up: 1 broker", "h:1", "d" * 90) == (
        f"Barnabas is up: 1 broker at h:1\n  data in {'d' * 90}"
    )
