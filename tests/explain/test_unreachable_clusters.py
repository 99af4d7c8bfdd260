"""Brokers that share an address, a cluster that does not answer, and a ZooKeeper that is down."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from msgspec.structs import replace

from barnabas import LocalCluster
from barnabas.cli.explain.gather import gather_facts
from barnabas.cli.explain.registry_facts import RegistryPlace
from barnabas.client.cluster import Cluster
from barnabas.cluster.zookeeper_servers import ZooKeeperServers
from barnabas.explain.cluster import explain_broker
from barnabas.explain.finding import Cause, Finding
from support.cluster import ClusterProcesses
from support.command import COMMAND, run
from support.process import ChildProcess
from support.waiting import eventually
from tests.explain.live import SETTINGS, LiveCluster
from tests.zookeeper import require_java

IMPATIENT = {"zookeeper.session.timeout.ms": "4000"}


def test_brokers_with_the_same_address_and_stopped_cluster(tmp_path: Path) -> None:
    cluster = LocalCluster(brokers=2, data=tmp_path, settings=SETTINGS)
    with cluster:
        live = LiveCluster(cluster, tmp_path)
        victim = live.spare[0]
        other = cluster.brokers[live.controller]
        cluster.brokers[victim].kill()
        config = cluster.brokers[victim].config
        cluster.brokers[victim].config = replace(config, advertised_listeners=(other.endpoint,))
        servers = other.address
        cluster.brokers[
            victim
        ].begin_start()  # it waits for the controller, which reaches only the other broker

        def explain() -> list[Finding]:
            with Cluster(servers, timeout_s=10) as client:
                return explain_broker(gather_facts(client, RegistryPlace()).facts, victim)

        live.expect(explain, Cause.BROKER_ADDRESS_SHARED, [victim])
        cluster.brokers[victim].kill()
    explained = run("cluster", "explain", "-b", servers, "--data", str(tmp_path))
    text = " ".join(explained.stdout.split())
    assert "error: no broker answers" in text
    assert "error: there is no controller" in text
    assert run("cluster", "health", "-b", servers, "--data", str(tmp_path)).returncode == 1
    without = run("cluster", "explain", "-b", servers)
    assert without.returncode == 1
    assert "no broker answers; tried" in without.stderr


def start_command(servers: str) -> list[str] | None:
    """Return the arguments of the command that `cluster explain` suggests to start a broker."""
    ended = run("cluster", "explain", "-b", servers, "-o", "json")
    assert "registry_down" not in ended.stdout
    found = re.search(r"start broker 2 again: `barnabas (broker [^`]+)`", ended.stdout)
    return None if found is None else shlex.split(found[1])


def test_suggested_command_starts_the_broker_and_zookeeper_is_down(tmp_path: Path) -> None:
    require_java()
    zookeeper = ZooKeeperServers(tmp_path / "zookeeper")
    zookeeper.start()
    try:
        connect = zookeeper.connect_string
        with ClusterProcesses(tmp_path, connect, brokers=2, settings=IMPATIENT) as cluster:
            servers = cluster.brokers[1].bootstrap_servers
            create = ("topics", "create", "orders", "--replication-factor", "2", "-b", servers)
            assert run(*create).returncode == 0
            cluster.brokers[2].kill()
            eventually(lambda: start_command(servers) is not None, "broker 2 is missing")
            command = start_command(servers)
            assert command is not None
            started = ChildProcess("broker 2", [*COMMAND, *command], log=tmp_path / "again.log")
            try:
                eventually(lambda: start_command(servers) is None, "broker 2 is back")
            finally:
                started.kill()
            zookeeper.stop()
            down = run("cluster", "explain", "-b", servers)
            text = " ".join(down.stdout.split())
            assert f"the ZooKeeper at {connect} does not answer this command" in text
            assert "next: check that a majority of the ZooKeeper servers is running" in text
    finally:
        zookeeper.stop()
