"""Kafka's own tools of 3.9 and 4 with three of our brokers and a real ZooKeeper."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count

import pytest

from barnabas.java.find import Java
from interop.harness.jars import Jars
from interop.harness.member import start_together
from interop.harness.our_broker import OurBroker
from interop.harness.tools import RELEASES, Outcome, Tools
from interop.harness.zookeeper import ZooKeeper
from support.waiting import eventually

NUMBERS = count()
IDS = (1, 2, 3)
ON_THREE = ("--partitions", "3", "--replication-factor", "3")
ON_TWO = ("--partitions", "2", "--replication-factor", "2")
DELETE_SECONDS = 30.0


class OurCluster:
    def __init__(self, brokers: list[OurBroker]) -> None:
        self.brokers = {broker.broker_id: broker for broker in brokers}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper) -> Iterator[OurCluster]:
    directory = tmp_path_factory.mktemp("ours-three")
    brokers = [
        OurBroker(
            number,
            directory / str(number),
            zookeeper_connect=f"{zookeeper.address}/{directory.name}",
            settings={
                "zookeeper.session.timeout.ms": "6000",
                # Leaders move back only when a tool requests it.
                "auto.leader.rebalance.enable": "false",
            },
        )
        for number in IDS
    ]
    start_together(brokers)
    try:
        yield OurCluster(brokers)
    finally:
        for broker in brokers:
            broker.kill()


@pytest.fixture(scope="module", params=RELEASES)
def of_release(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    java: Java,
    kafka_jars: Jars,
    cluster: OurCluster,
) -> Tools:
    scratch = tmp_path_factory.mktemp("tools-three")
    found = Tools(release=request.param, java=java, jars=kafka_jars, scratch=scratch)
    found.create_class_archive(cluster.bootstrap_servers)
    return found


def topics(tools: Tools, cluster: OurCluster, *arguments: str) -> Outcome:
    where = ("--bootstrap-server", cluster.bootstrap_servers)
    return tools.succeed("kafka-topics", *where, *arguments)


def described(outcome: Outcome) -> dict[int, dict[str, str]]:
    """The fields of each partition in the tool's output."""
    rows = [
        dict(field.split(": ", 1) for field in line.strip().split("\t") if ": " in field)
        for line in outcome.lines
        if "Partition: " in line
    ]
    return {int(row["Partition"]): row for row in rows}


def led_and_in_sync(outcome: Outcome) -> dict[int, tuple[str, str]]:
    return {number: (row["Leader"], row["Isr"]) for number, row in described(outcome).items()}


def test_kafka_topics_creates_and_describes_three_replicas(
    of_release: Tools, cluster: OurCluster
) -> None:
    name = f"copied-{next(NUMBERS)}"
    made = topics(of_release, cluster, "--create", "--topic", name, *ON_THREE)
    assert made.lines == [f"Created topic {name}."]
    output = topics(of_release, cluster, "--describe", "--topic", name)
    assert "PartitionCount: 3\tReplicationFactor: 3" in output.lines[0]
    partitions = described(output)
    assert {row["Leader"] for row in partitions.values()} == {"1", "2", "3"}
    for row in partitions.values():
        assert row["Replicas"] == row["Isr"]
        assert row["Replicas"].startswith(row["Leader"])
        assert sorted(row["Replicas"].split(",")) == ["1", "2", "3"]


def test_kafka_topics_uses_replica_assignment(of_release: Tools, cluster: OurCluster) -> None:
    name = f"assigned-{next(NUMBERS)}"
    topics(of_release, cluster, "--create", "--topic", name, "--replica-assignment", "3:1,2:3")
    output = described(topics(of_release, cluster, "--describe", "--topic", name))
    assert [row["Replicas"] for row in output.values()] == ["3,1", "2,3"]
    assert [row["Leader"] for row in output.values()] == ["3", "2"]


def test_kafka_topics_adds_partitions(of_release: Tools, cluster: OurCluster) -> None:
    name = f"grown-{next(NUMBERS)}"
    topics(of_release, cluster, "--create", "--topic", name, "--replica-assignment", "3:1,2:3")
    output = topics(of_release, cluster, "--alter", "--topic", name, "--partitions", "4")
    assert output.lines == []
    grown = described(topics(of_release, cluster, "--describe", "--topic", name))
    assert [row["Replicas"] for row in grown.values()] == ["3,1", "2,3", "2,3", "3,2"]
    assert [row["Leader"] for row in grown.values()] == ["3", "2", "2", "3"]
    by_hand = ("--partitions", "5", "--replica-assignment", "3:1,2:3,2:3,3:2,1:3")
    topics(of_release, cluster, "--alter", "--topic", name, *by_hand)
    output = topics(of_release, cluster, "--describe", "--topic", name)
    assert "PartitionCount: 5\tReplicationFactor: 2" in output.lines[0]
    assert described(output)[4]["Replicas"] == described(output)[4]["Isr"] == "1,3"


@pytest.mark.parametrize(
    ("topic", "partitions", "why"),
    [
        ("small", "1", "InvalidPartitionsException"),
        ("small", "2", "InvalidPartitionsException"),
        ("nobody", "3", "does not exist"),
    ],
)
def test_kafka_topics_reports_rejected_expansion(
    of_release: Tools, cluster: OurCluster, topic: str, partitions: str, why: str
) -> None:
    where = ("--bootstrap-server", cluster.bootstrap_servers)
    topics(of_release, cluster, "--create", "--if-not-exists", "--topic", "small", *ON_TWO)
    wanted = ("--alter", "--topic", topic, "--partitions", partitions)
    refused = of_release.run("kafka-topics", *where, *wanted)
    assert refused.exit_code == 1
    assert why in refused.stdout + refused.stderr
    if topic == "nobody":
        assert topics(of_release, cluster, *wanted, "--if-exists").lines == []


def test_kafka_topics_deletes_topic_on_three_brokers(
    of_release: Tools, cluster: OurCluster
) -> None:
    name = f"deleted-{next(NUMBERS)}"
    topics(of_release, cluster, "--create", "--topic", name, *ON_THREE)
    topics(of_release, cluster, "--delete", "--topic", name)
    assert name not in topics(of_release, cluster, "--list").lines
    eventually(
        lambda: (
            not any(
                path.name.startswith(name) and not path.name.endswith("-delete")
                for broker in cluster.brokers.values()
                for path in broker.log_dir.iterdir()
            )
        ),
        "only directories marked for removal are left",
        DELETE_SECONDS,
    )


def test_under_replicated_partitions_and_preferred_election(
    of_release: Tools, cluster: OurCluster
) -> None:
    name = f"missing-{next(NUMBERS)}"
    topics(of_release, cluster, "--create", "--topic", name, "--replica-assignment", "1:3,3:2,2:1")
    trouble = ("--describe", "--topic", name, "--under-replicated-partitions")
    alone = {0: ("1", "1"), 1: ("2", "2")}
    assert topics(of_release, cluster, *trouble).stdout == ""
    cluster.brokers[3].stop()
    try:
        # Brokers learn of it one after the other, and the tool may query any of them.
        eventually(
            lambda: led_and_in_sync(topics(of_release, cluster, *trouble)) == alone,
            f"two partitions are under-replicated: {alone}",
            DELETE_SECONDS,
        )
    finally:
        start_together([cluster.brokers[3]], already=[cluster.brokers[1], cluster.brokers[2]])
    eventually(
        lambda: topics(of_release, cluster, *trouble).stdout == "",
        "all replicas are in sync again",
        DELETE_SECONDS,
    )
    where = ("--bootstrap-server", cluster.bootstrap_servers)
    wanted = ("--election-type", "PREFERRED", "--topic", name, "--partition", "1")
    output = of_release.succeed("kafka-leader-election", *where, *wanted)
    assert output.lines == [
        f"Successfully completed leader election (PREFERRED) for partitions {name}-1"
    ]
    led = described(topics(of_release, cluster, "--describe", "--topic", name))
    assert [row["Leader"] for row in led.values()] == ["1", "3", "2"]
    again = of_release.succeed("kafka-leader-election", *where, *wanted)
    assert again.lines == [f"Valid replica already elected for partitions {name}-1"]


def test_kafka_broker_api_versions_lists_three_brokers(
    of_release: Tools, cluster: OurCluster
) -> None:
    where = ("--bootstrap-server", cluster.bootstrap_servers)
    output = of_release.succeed("kafka-broker-api-versions", *where).stdout
    found = re.findall(r"^127\.0\.0\.1:(\d+) \(id: (\d) rack: null", output, re.MULTILINE)
    ports = {int(number): int(port) for port, number in found}
    assert ports == {number: broker.port for number, broker in cluster.brokers.items()}
    assert "ERROR" not in output
