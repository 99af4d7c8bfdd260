"""Fixtures: Apache Kafka and Barnabas side by side. Servers run for the whole session; missing tools cause skips."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.java.find import Java
from interop.harness.jars import Jars, jars, require_java
from interop.harness.kafka import SETTINGS, KafkaBroker, KafkaCluster
from interop.harness.tools import RELEASES, Tools
from interop.harness.unavailable import Unavailable
from interop.harness.zookeeper import ZooKeeper
from support.broker import BrokerProcess


@pytest.fixture(scope="session")
def java() -> Java:
    try:
        return require_java()
    except Unavailable as error:
        if error.may_skip():
            pytest.skip(str(error))
        pytest.fail(str(error))


@pytest.fixture(scope="session")
def kafka_jars() -> Jars:
    fetched = jars()
    if missing := fetched.missing():
        pytest.skip(f"not downloaded: {', '.join(missing)}; run make interop")
    return fetched


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory, java: Java) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper"), java) as running:
        yield running


@pytest.fixture(scope="session")
def kafka(
    tmp_path_factory: pytest.TempPathFactory, java: Java, kafka_jars: Jars, zookeeper: ZooKeeper
) -> Iterator[KafkaBroker]:
    """One broker of Kafka 3.9."""
    directory = tmp_path_factory.mktemp("kafka")
    with KafkaCluster(directory, java=java, jars=kafka_jars, zookeeper=zookeeper) as running:
        yield running.brokers[0]


@pytest.fixture(scope="session")
def kafka_cluster(
    tmp_path_factory: pytest.TempPathFactory, java: Java, kafka_jars: Jars, zookeeper: ZooKeeper
) -> Iterator[KafkaCluster]:
    """Three brokers of Kafka 3.9."""
    with KafkaCluster(
        tmp_path_factory.mktemp("kafka-cluster"),
        java=java,
        jars=kafka_jars,
        zookeeper=zookeeper,
        count=3,
    ) as running:
        yield running


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker of Barnabas."""
    with BrokerProcess(tmp_path_factory.mktemp("barnabas") / "data", SETTINGS) as running:
        yield running


@pytest.fixture(scope="session", params=RELEASES)
def tools(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    java: Java,
    kafka_jars: Jars,
    ours: BrokerProcess,
) -> Tools:
    """The tools of each release in turn."""
    scratch = tmp_path_factory.mktemp("tools")
    found = Tools(release=request.param, java=java, jars=kafka_jars, scratch=scratch)
    found.create_class_archive(ours.bootstrap_servers)
    return found
