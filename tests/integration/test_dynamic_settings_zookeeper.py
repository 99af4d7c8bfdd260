"""Settings that change in a cluster with ZooKeeper: znodes in Kafka's format, tools that write them, killed brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, ConfigChange, ConfigResource
from barnabas.cluster.zookeeper_servers import ZooKeeperServers
from barnabas.errors import ErrorCode
from barnabas.wire.messages.describe_configs import ResourceType
from support.cluster import ClusterProcesses
from support.waiting import eventually
from tests.compatibility.raw import Raw, batch_of, wait_until_known

NUMBERS = count()
SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "log.retention.ms": "-1",
    "barnabas.history.topic.enable": "false",
}


@pytest.fixture(scope="module")
def connect(shared_zookeeper: ZooKeeperServers) -> str:
    return f"{shared_zookeeper.connect_string}/settings-{uuid4().hex}"


@pytest.fixture(scope="module")
def cluster(connect: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    data = tmp_path_factory.mktemp("settings")
    with ClusterProcesses(data, connect, brokers=2, settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def kazoo(connect: str, cluster: ClusterProcesses) -> Iterator[KazooClient]:
    client = KazooClient(hosts=connect)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def client(cluster: ClusterProcesses) -> Iterator[Cluster]:
    with Cluster(cluster.bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(cluster: ClusterProcesses, client: Cluster) -> str:
    """A topic whose only partition is on broker 2."""
    name = f"settings-{next(NUMBERS)}"
    (made,) = Admin(client).create_topics([NewTopic(name=name, assignment=[[2]])])
    assert made.error is None, made
    wait_until_known([each.bootstrap_servers for each in cluster.brokers.values()], name)
    return name


def produce_code(cluster: ClusterProcesses, topic: str) -> int:
    with Raw(cluster.brokers[2].bootstrap_servers) as raw:
        return raw.produce(topic, batch_of(b"x" * 2000)).error_code


def wait_for_limit(cluster: ClusterProcesses, topic: str) -> None:
    eventually(
        lambda: produce_code(cluster, topic) == ErrorCode.MESSAGE_TOO_LARGE,
        "broker 2 uses the new limit",
    )


def content(kazoo: KazooClient, path: str) -> object:
    data, _ = kazoo.get(path)
    return json.loads(data)


def write_settings(kazoo: KazooClient, topic: str) -> None:
    data = b'{"version":1,"config":{"max.message.bytes":"1000"}}'
    kazoo.set(f"/config/topics/{topic}", data)


def test_change_is_written_in_the_format_of_kafka(
    cluster: ClusterProcesses, client: Cluster, kazoo: KazooClient, topic: str
) -> None:
    before = set(kazoo.get_children("/config/changes"))
    resources = {
        ConfigResource(ResourceType.TOPIC, topic): [ConfigChange("max.message.bytes", "1000")],
        ConfigResource(ResourceType.BROKER, ""): [ConfigChange("log.retention.bytes", "1000000")],
        ConfigResource(ResourceType.BROKER, "2"): [ConfigChange("max.connections", "900")],
    }
    results = ConfigAdmin(client).incremental_alter_configs(resources)
    assert set(results.values()) == {None}
    wait_for_limit(cluster, topic)
    for path, settings in (
        (f"topics/{topic}", {"max.message.bytes": "1000"}),
        ("brokers/<default>", {"log.retention.bytes": "1000000"}),
        ("brokers/2", {"max.connections": "900"}),
    ):
        assert content(kazoo, f"/config/{path}") == {"version": 1, "config": settings}
    notes = sorted(set(kazoo.get_children("/config/changes")) - before)
    assert {str(content(kazoo, f"/config/changes/{note}")) for note in notes} == {
        str({"version": 2, "entity_path": path})
        for path in (f"topics/{topic}", "brokers/<default>", "brokers/2")
    }


@pytest.mark.parametrize("version", [1, 2])
def test_change_written_by_a_zookeeper_tool_is_applied(
    cluster: ClusterProcesses, kazoo: KazooClient, topic: str, version: int
) -> None:
    assert produce_code(cluster, topic) == ErrorCode.NONE
    write_settings(kazoo, topic)
    note: dict[str, object] = {"version": 2, "entity_path": f"topics/{topic}"}
    if version == 1:
        note = {"version": 1, "entity_type": "topics", "entity_name": topic}
    kazoo.create("/config/changes/config_change_", json.dumps(note).encode(), sequence=True)
    wait_for_limit(cluster, topic)


def test_write_of_a_killed_tool_is_applied_at_the_next_start(
    cluster: ClusterProcesses, kazoo: KazooClient, topic: str
) -> None:
    """The settings are written, and the notification is not."""
    write_settings(kazoo, topic)
    assert produce_code(cluster, topic) == ErrorCode.NONE
    cluster.brokers[2].kill()
    cluster.brokers[2].start()
    wait_for_limit(cluster, topic)


def test_change_while_a_broker_is_down_is_applied_at_its_start(
    cluster: ClusterProcesses, client: Cluster, kazoo: KazooClient, topic: str
) -> None:
    cluster.brokers[2].kill()
    resource = ConfigResource(ResourceType.TOPIC, topic)
    change = [ConfigChange("max.message.bytes", "1000")]
    with Cluster(cluster.brokers[1].bootstrap_servers) as survivor:
        results = ConfigAdmin(survivor).incremental_alter_configs({resource: change})
    assert results == {resource: None}
    cluster.brokers[2].start()
    wait_for_limit(cluster, topic)
