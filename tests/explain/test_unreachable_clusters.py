"""Brokers that share an address, a cluster that does not answer, and a ZooKeeper that is down."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace

from barnabas import LocalCluster
from barnabas.cli.explain.gather import gather_facts
from barnabas.cli.explain.registry_facts import RegistryPlace
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.cluster.zookeeper_servers import ZooKeeperServers
from barnabas.errors import ApiError
from barnabas.explain.cluster import explain_cluster
from barnabas.explain.facts import ClusterFacts
from barnabas.explain.finding import Cause, Finding, Severity
from barnabas.explain.text import cause_text, next_text
from support.cluster import ClusterProcesses
from support.command import COMMAND, run
from support.process import ChildProcess
from support.waiting import eventually
from tests.explain.live import SETTINGS, LiveCluster, broker
from tests.zookeeper import require_java

IMPATIENT = {"zookeeper.session.timeout.ms": "1500"}


def test_brokers_with_the_same_address_and_stopped_cluster(tmp_path: Path) -> None:
    with LocalCluster(brokers=2, data=tmp_path, settings=SETTINGS) as started:
        live = LiveCluster(started, tmp_path)
        victim = live.spare[0]
        other = started.brokers[live.controller]
        started.brokers[victim].kill()
        config = started.brokers[victim].config
        started.brokers[victim].config = replace(config, advertised_listeners=(other.endpoint,))
        # It waits for the controller, which reaches only the other broker.
        started.brokers[victim].begin_start()
        expected = broker(victim, Cause.BROKER_ADDRESS_SHARED)
        eventually(lambda: expected.find(explain(other.address)[0]) is not None, "it is found")
        started.brokers[victim].kill()
    with Cluster(other.address, timeout_s=10) as client:
        facts = gather_facts(client, RegistryPlace(data=str(tmp_path), is_given=True)).facts
        causes = [each.cause for each in explain_cluster(facts)]
        assert causes == [Cause.NO_BROKER_ANSWERS, Cause.NO_CONTROLLER]
        with pytest.raises(ApiError):
            gather_facts(client, RegistryPlace())
    arguments = ("-b", other.address, "--data", str(tmp_path))
    explained = run("cluster", "health", *arguments)
    assert explained.returncode == 1
    assert "error: no broker answers" in explained.stdout
    assert "no broker answers; tried" in run("cluster", "health", "-b", other.address).stderr


def explain(servers: str) -> tuple[ClusterFacts, list[Finding]]:
    with Cluster(servers, timeout_s=10) as client:
        facts = gather_facts(client, RegistryPlace()).facts
    return facts, explain_cluster(facts)


def start_command(servers: str) -> list[str] | None:
    """Return the arguments of the command that `cluster explain` suggests to start broker 2."""
    facts, findings = explain(servers)
    down = next((each for each in findings if each.cause is Cause.BROKER_DOWN), None)
    if down is None:
        return None
    found = re.search(r"`barnabas (broker [^`]+)`", next_text(down, "", facts.start_commands))
    return None if found is None else shlex.split(found[1])


def test_suggested_command_starts_the_broker_and_zookeeper_is_down(tmp_path: Path) -> None:
    require_java()
    zookeeper = ZooKeeperServers(tmp_path / "zookeeper")
    zookeeper.start()
    try:
        connect = zookeeper.connect_string
        with ClusterProcesses(tmp_path, connect, brokers=2, settings=IMPATIENT) as cluster:
            servers = cluster.brokers[1].bootstrap_servers
            with Cluster(servers) as client:
                (made,) = Admin(client).create_topics(
                    [NewTopic(name="orders", assignment=[[1, 2]])]
                )
            assert made.error is None
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
            _, findings = explain(servers)
            (down,) = [each for each in findings if each.cause is Cause.REGISTRY_DOWN]
            assert down.severity is Severity.ERROR
            assert f"the ZooKeeper at {connect} does not answer the brokers" in cause_text(down)
    finally:
        zookeeper.stop()
