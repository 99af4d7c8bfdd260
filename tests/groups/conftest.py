"""Three broker processes, and one process for the members of each client library, for all tests of this directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from barnabas.cluster.zookeeper_servers import ZooKeeperServers
from support.cluster import ClusterProcesses
from tests import tools
from tests.compatibility.optional import require
from tests.groups.host import Host

LIBRARIES = ("librdkafka", "kafka_python", "aiokafka", "barnabas", "kafkajs")
SETTINGS = {
    "zookeeper.session.timeout.ms": "3000",
    # One partition: all groups have the same coordinator, and fail over together.
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "barnabas.history.topic.enable": "false",
    "auto.create.topics.enable": "false",
}


@pytest.fixture(scope="session")
def groups_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("groups")


@pytest.fixture(scope="session")
def cluster(shared_zookeeper: ZooKeeperServers, groups_data: Path) -> Iterator[ClusterProcesses]:
    chroot = f"{shared_zookeeper.connect_string}/groups-{uuid4().hex}"
    with ClusterProcesses(groups_data, chroot, brokers=3, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def servers(cluster: ClusterProcesses) -> str:
    return cluster.bootstrap_servers


@pytest.fixture(scope="session")
def producer(cluster: ClusterProcesses) -> Producer:
    return Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 0,
        }
    )


@pytest.fixture(scope="session")
def hosts(groups_data: Path) -> Iterator[Mapping[str, Host]]:
    """Processes that tests must not kill."""
    require(tools.have_kafkajs(), "kafkajs")
    started = {library: Host(library, groups_data) for library in LIBRARIES}
    yield started
    for host in started.values():
        host.kill()


@pytest.fixture
def new_host(groups_data: Path) -> Iterator[Callable[[str], Host]]:
    """Processes that tests may kill."""
    started: list[Host] = []

    def start(library: str) -> Host:
        started.append(Host(library, groups_data))
        return started[-1]

    yield start
    for host in started:
        host.kill()
