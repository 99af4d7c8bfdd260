"""kafka-topics and kafka-configs with --zookeeper, and hand-written znodes: the controller acts on both."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from uuid import uuid4

import click.testing
import pytest
from kazoo.client import KazooClient

from barnabas.cli.main import cli
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, ConfigResource, QuotaEntity
from barnabas.client.view import TopicView
from barnabas.cluster.zookeeper_servers import ZooKeeperServers
from barnabas.wire.messages.describe_configs import ResourceType
from support.broker import QUIET
from support.cluster import ClusterProcesses, MemberProcess
from support.waiting import eventually

NUMBERS = count()
DEADLINE_S = 30.0
KEYS_WARNING = (
    "WARNING: If partitions are increased for a topic that has a key, the partition logic or"
    " ordering of the messages will be affected"
)


@pytest.fixture(scope="module")
def connect(shared_zookeeper: ZooKeeperServers) -> str:
    return f"{shared_zookeeper.connect_string}/commands-{uuid4().hex}"


@pytest.fixture(scope="module")
def cluster(connect: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    data = tmp_path_factory.mktemp("commands")
    running = ClusterProcesses(data, connect, brokers=3, settings=QUIET)
    running.brokers[0] = MemberProcess(data, connect, 0, QUIET)  # broker ids often start at 0
    with running:
        yield running


@pytest.fixture(scope="module")
def kazoo(connect: str, cluster: ClusterProcesses) -> Iterator[KazooClient]:
    client = KazooClient(hosts=connect)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def topic() -> str:
    return f"topic-{next(NUMBERS)}"


@pytest.fixture
def run(connect: str, cluster: ClusterProcesses) -> Callable[..., click.testing.Result]:
    def run(line: str, *, name: str = "kafka-topics") -> click.testing.Result:
        arguments = [name, "--zookeeper", connect, *line.split()]
        return click.testing.CliRunner().invoke(cli, arguments)

    return run


Run = Callable[..., click.testing.Result]


def assert_done(result: click.testing.Result, stderr: str = "") -> list[str]:
    assert result.exit_code == 0, result.output
    assert result.stderr == stderr
    return result.stdout.splitlines()


def view(cluster: ClusterProcesses, name: str) -> TopicView | None:
    with Cluster(cluster.bootstrap_servers) as client:
        return client.refresh(None).topics.get(name)


def has_leaders(cluster: ClusterProcesses, name: str, partitions: int) -> bool:
    found = view(cluster, name)
    return (
        found is not None
        and len(found.partitions) == partitions
        and not any(each.is_offline for each in found.partitions)
    )


def wait_for_leaders(cluster: ClusterProcesses, name: str, partitions: int) -> TopicView:
    eventually(lambda: has_leaders(cluster, name, partitions), f"leaders of {name}", DEADLINE_S)
    found = view(cluster, name)
    assert found is not None
    return found


def content(kazoo: KazooClient, path: str) -> Any:
    return json.loads(kazoo.get(path)[0])


# ---- commands

TUTORIAL_COMMANDS = """
kafka-topics.sh --create --topic test --zookeeper XXXX --partitions 3 --replication-factor 2
kafka-topics.sh --create --bootstrap-server localhost:9092  --topic my-topic-name  --replication-factor 3 --partitions 3   --config max.message.bytes=64000
kafka-topics.sh --bootstrap-server broker_host:port --alter --topic my-topic-name --partitions 4
kafka-topics.sh --bootstrap-server broker_host:port --delete --topic my-topic-name
kafka-topics.sh --create --bootstrap-server localhost:9092  --topic my-topic-name  --replica-assignment 0:1:2,0:1:2,0:1:2 --config max.message.bytes=64000
kafka-topics.sh --bootstrap-server broker_host:port --alter  --topic my-topic-name     --replica-assignment 0:1:2,0:1:2,0:1:2,2:1:0  --partitions 4
"""  # noqa: E501 - as they are written


def test_tutorial_commands_work_unchanged(connect: str, cluster: ClusterProcesses) -> None:
    servers = cluster.brokers[cluster.controller_id].bootstrap_servers
    lines = re.sub("localhost:9092|broker_host:port", servers, TUTORIAL_COMMANDS)
    for line in lines.replace("XXXX", connect).strip().splitlines():
        name, *words = line.split()
        assert_done(click.testing.CliRunner().invoke(cli, [name.removesuffix(".sh"), *words]))
    wait_for_leaders(cluster, "test", 3)
    found = wait_for_leaders(cluster, "my-topic-name", 4)
    placed = [each.replicas for each in found.partitions]
    assert placed == [(0, 1, 2), (0, 1, 2), (0, 1, 2), (2, 1, 0)]


def test_created_topic_gets_leaders_and_is_described_from_znodes(
    run: Run, cluster: ClusterProcesses, kazoo: KazooClient, topic: str
) -> None:
    line = f"--create --topic {topic} --partitions 3 --replication-factor 2 --config flush.ms=5"
    assert assert_done(run(line)) == [f"Created topic {topic}."]
    found = wait_for_leaders(cluster, topic, 3)
    assert content(kazoo, f"/config/topics/{topic}") == {"version": 1, "config": {"flush.ms": "5"}}
    written = content(kazoo, f"/brokers/topics/{topic}")
    assert [tuple(each) for each in written["partitions"].values()] == [
        each.replicas for each in found.partitions
    ]
    head, first, *_ = assert_done(run(f"--describe --topic {topic}"))
    assert head == (
        f"Topic: {topic}\tTopicId: {written['topic_id']}\tPartitionCount: 3\tReplicationFactor: 2"
        "\tConfigs: flush.ms=5"
    )
    replicas = ",".join(map(str, found.partitions[0].replicas))
    leader = found.partitions[0].leader
    assert first == (
        f"\tTopic: {topic}\tPartition: 0\tLeader: {leader}\tReplicas: {replicas}\tIsr: {replicas}"
    )
    assert topic in assert_done(run("--list"))


def test_alter_adds_partitions_and_ignores_existing_assignments(
    run: Run, cluster: ClusterProcesses, topic: str
) -> None:
    assert_done(run(f"--create --topic {topic} --replica-assignment 3:1,1:2"))
    before = wait_for_leaders(cluster, topic, 2)
    result = run(f"--alter --topic {topic} --replica-assignment 9:9,9:8,2:3 --partitions 3")
    assert result.exit_code == 1  # duplicate replicas are rejected even for existing partitions
    line = f"--alter --topic {topic} --replica-assignment 9:8,9:8,2:3 --partitions 3"
    assert assert_done(run(line)) == [KEYS_WARNING, "Adding partitions succeeded!"]
    grown = wait_for_leaders(cluster, topic, 3)
    assert grown.id == before.id
    assert [each.replicas for each in grown.partitions] == [(3, 1), (1, 2), (2, 3)]
    assert assert_done(run(f"--alter --topic {topic} --partitions 5")) == [
        KEYS_WARNING,
        "Adding partitions succeeded!",
    ]
    placed = [each.replicas for each in wait_for_leaders(cluster, topic, 5).partitions]
    assert all(len(set(each)) == 2 for each in placed)


def test_delete_writes_marker_for_controller(
    run: Run, cluster: ClusterProcesses, kazoo: KazooClient, topic: str
) -> None:
    assert_done(run(f"--create --topic {topic} --replica-assignment 1:2"))
    wait_for_leaders(cluster, topic, 1)
    assert assert_done(run(f"--delete --topic {topic}")) == [
        f"Topic {topic} is marked for deletion.",
        "Note: This will have no impact if delete.topic.enable is not set to true.",
    ]
    eventually(lambda: not kazoo.exists(f"/brokers/topics/{topic}"), "gone", DEADLINE_S)
    eventually(lambda: view(cluster, topic) is None, "no broker knows it", DEADLINE_S)
    gone = run(f"--delete --topic {topic}")
    assert gone.exit_code == 1
    words = f"Topic '{topic}' does not exist as expected"
    assert gone.stdout == f"Error while executing topic command : {words}\n"
    assert assert_done(run(f"--delete --topic {topic} --if-exists")) == []


def test_config_change_writes_notification_znode(
    run: Run, cluster: ClusterProcesses, kazoo: KazooClient, topic: str
) -> None:
    assert_done(run(f"--create --topic {topic} --replica-assignment 1 --config flush.ms=5"))
    wait_for_leaders(cluster, topic, 1)
    before = set(kazoo.get_children("/config/changes"))
    warning, line, updated = assert_done(
        run(f"--alter --topic {topic} --config retention.ms=7 --delete-config flush.ms")
    )
    assert warning.startswith("WARNING: Altering topic configuration from this script has been")
    assert line.strip().startswith("Going forward, please use kafka-configs.sh")
    assert updated == f"Updated config for topic {topic}."
    assert content(kazoo, f"/config/topics/{topic}")["config"] == {"retention.ms": "7"}
    (note,) = set(kazoo.get_children("/config/changes")) - before
    assert content(kazoo, f"/config/changes/{note}") == {
        "version": 2,
        "entity_path": f"topics/{topic}",
    }
    entity = f"--entity-type topics --entity-name {topic}"
    *_, completed = assert_done(
        run(f"--alter {entity} --add-config cleanup.policy=[compact,delete]", name="kafka-configs")
    )
    assert completed == f"Completed updating config for entity: topic '{topic}'."
    *_, described = assert_done(run(f"--describe {entity}", name="kafka-configs"))
    assert (
        described == f"Configs for topic '{topic}' are cleanup.policy=compact,delete,retention.ms=7"
    )
    # Broker 1 has a replica, broker 2 has none.
    eventually(
        lambda: (
            [topic_setting(cluster, each, topic, "retention.ms") for each in (1, 2)] == ["7", "7"]
        ),
        "both brokers apply the change",
        DEADLINE_S,
    )


def topic_setting(cluster: ClusterProcesses, broker: int, topic: str, name: str) -> str | None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    with Cluster(cluster.brokers[broker].bootstrap_servers) as client:
        found = ConfigAdmin(client).describe_configs([resource], names=[name])[resource]
    assert isinstance(found, list), found
    return found[0].value


def test_configs_of_all_entity_types_are_written_for_running_brokers(
    run: Run, cluster: ClusterProcesses, kazoo: KazooClient
) -> None:
    def configs(line: str, stderr: str = "") -> list[str]:
        _, _, *lines = assert_done(run(line, name="kafka-configs"), stderr)
        return lines

    alter = "--alter --user alice --client app --add-config producer_byte_rate=5"
    entity = "user-principal 'alice', client-id 'app'"
    assert configs(alter) == [f"Completed updating config for entity: {entity}."]
    assert content(kazoo, "/config/users/alice/clients/app")["config"] == {
        "producer_byte_rate": "5"
    }
    with Cluster(cluster.bootstrap_servers) as client:
        quotas = ConfigAdmin(client).describe_client_quotas()
    assert quotas == {QuotaEntity(user="alice", client_id="app"): {"producer_byte_rate": 5.0}}
    assert configs("--describe --entity-type users --entity-type clients") == [
        f"Configs for {entity} are producer_byte_rate=5"
    ]
    configs("--alter --user alice --client app --delete-config producer_byte_rate")

    throttle = "leader.replication.throttled.rate"
    configs(f"--alter --broker 1 --add-config {throttle}=1000000")

    def rate() -> str | None:
        with Cluster(cluster.brokers[1].bootstrap_servers) as client:
            resource = ConfigResource(ResourceType.BROKER, "1")
            found = ConfigAdmin(client).describe_configs([resource], names=[throttle])[resource]
        assert isinstance(found, list), found
        return found[0].value if found else None

    eventually(lambda: rate() == "1000000", "broker 1 applies the throttle", DEADLINE_S)
    configs(f"--alter --broker 1 --delete-config {throttle}")
    refused = run("--alter --broker 1 --add-config log.cleaner.threads=2", name="kafka-configs")
    assert refused.exit_code == 1
    assert "Set(log.cleaner.threads). when broker 1 is running." in refused.stderr


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--create --topic {taken} --replica-assignment 1", "Topic '{taken}' already exists."),
        (
            "--create --topic wide --partitions 1 --replication-factor 5",
            "Replication factor: 5 larger than available brokers: 4.",
        ),
        ("--create --topic a/b --replica-assignment 1", "'a/b' may contain only letters, digits"),
        ("--create --topic new --replica-assignment 1:9", "there is no broker 9"),
        ("--create --topic new --partitions 0 --replication-factor 1", "The partitions must be gr"),
        (
            "--alter --topic {taken} --partitions 1",
            "The number of partitions for a topic can only be increased. Topic {taken} currently"
            " has 1 partitions, 1 would not be an increase.",
        ),
        ("--alter --topic {taken} --partitions 2 --replica-assignment 1,9", "there is no broker 9"),
        (
            "--alter --topic {taken} --config retention.ms=-7",
            "Invalid value -7 for configuration retention.ms: Value must be at least -1",
        ),
        ("--describe --topic nowhere", "Topic 'nowhere' does not exist as expected"),
    ],
)
def test_rejected_command_writes_nothing(run: Run, kazoo: KazooClient, line: str, why: str) -> None:
    taken = "taken"
    run(f"--create --topic {taken} --replica-assignment 1 --if-not-exists")
    before = kazoo.get_children("/brokers/topics"), kazoo.get(f"/brokers/topics/{taken}")[0]
    result = run(line.format(taken=taken))
    assert result.exit_code == 1
    last = result.stdout.splitlines()[-1]
    assert last.startswith(f"Error while executing topic command : {why.format(taken=taken)}")
    assert before == (
        kazoo.get_children("/brokers/topics"),
        kazoo.get(f"/brokers/topics/{taken}")[0],
    )


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (
            "--alter --partitions 9",
            "The number of partitions for the internal topic __consumer_offsets cannot be changed.",
        ),
        (
            "--delete",
            "Topic __consumer_offsets is a kafka internal topic and is not allowed to be marked for deletion.",
        ),
    ],
)
def test_internal_topic_is_neither_expanded_nor_deleted(
    run: Run, kazoo: KazooClient, action: str, why: str
) -> None:
    internal = "__consumer_offsets"
    run(f"--create --topic {internal} --replica-assignment 1 --if-not-exists")
    before = kazoo.get(f"/brokers/topics/{internal}")[0]
    result = run(f"{action} --topic {internal}")
    assert result.exit_code == 1
    assert f"Error while executing topic command : {why}" in result.stdout.splitlines()
    assert kazoo.get(f"/brokers/topics/{internal}")[0] == before
    assert not kazoo.exists(f"/admin/delete_topics/{internal}")


def test_config_of_missing_topic_is_not_written(run: Run, kazoo: KazooClient) -> None:
    result = run("--alter --topic nowhere --add-config flush.ms=1", name="kafka-configs")
    assert result.exit_code == 1
    assert "kafka.admin.AdminOperationException: Topic 'nowhere' does not exist." in result.stderr
    assert not kazoo.exists("/config/topics/nowhere")


def test_chroot_without_cluster_is_named(connect: str) -> None:
    arguments = ["kafka-topics", "--zookeeper", f"{connect}/elsewhere", "--list"]
    result = click.testing.CliRunner().invoke(cli, arguments)
    assert result.exit_code == 1
    assert f"there is no cluster at {connect}/elsewhere" in result.stdout


# ---- hand-written znodes


@pytest.mark.parametrize(
    "written",
    [
        {"version": 1, "partitions": {"0": [1, 2], "1": [2, 3]}},
        {
            "version": 3,
            "topic_id": "v7CDn_RiRbmrvGPXyO6kdQ",
            "partitions": {"0": [1, 2], "1": [2, 3]},
            "adding_replicas": {},
            "removing_replicas": {},
        },
    ],
    ids=["of-version-1", "of-version-3"],
)
def test_hand_written_topic_is_created_expanded_and_deleted(
    cluster: ClusterProcesses, kazoo: KazooClient, topic: str, written: dict[str, Any]
) -> None:
    path = f"/brokers/topics/{topic}"
    kazoo.create(path, json.dumps(written).encode())
    found = wait_for_leaders(cluster, topic, 2)
    assert [each.replicas for each in found.partitions] == [(1, 2), (2, 3)]
    stored = content(kazoo, path)
    assert stored["topic_id"] == written.get("topic_id", stored["topic_id"])

    stored["partitions"]["2"] = [3, 1]
    kazoo.set(path, json.dumps(stored).encode())
    grown = wait_for_leaders(cluster, topic, 3)
    assert grown.id == found.id
    assert grown.partitions[2].replicas == (3, 1)

    kazoo.create(f"/admin/delete_topics/{topic}")
    eventually(lambda: not kazoo.exists(path), "its znodes are gone", DEADLINE_S)
    eventually(lambda: not kazoo.exists(f"/admin/delete_topics/{topic}"), "done", DEADLINE_S)
    eventually(lambda: view(cluster, topic) is None, "no broker knows it", DEADLINE_S)


def test_topic_with_pending_deletion_is_marked_in_list(
    run: Run, kazoo: KazooClient, topic: str, cluster: ClusterProcesses
) -> None:
    assert_done(run(f"--create --topic {topic} --replica-assignment 3:1"))
    wait_for_leaders(cluster, topic, 1)
    stopped = cluster.brokers[3] if cluster.controller_id != 3 else cluster.brokers[1]
    stopped.stop()
    try:
        assert_done(run(f"--delete --topic {topic}"))
        assert f"{topic} - marked for deletion" in assert_done(run("--list"))
        head, partition = assert_done(run(f"--describe --topic {topic}"))
        assert head.endswith("\tMarkedForDeletion: true")
        assert partition.endswith("\tMarkedForDeletion: true")
        assert assert_done(run(f"--delete --topic {topic}")) == [
            f"Topic {topic} is already marked for deletion."
        ]
        grown = run(f"--alter --topic {topic} --partitions 2")
        assert grown.exit_code == 1
        assert f"The topic {topic} is queued for deletion." in grown.stdout
        again = run(f"--create --topic {topic} --replica-assignment 1")
        assert again.exit_code == 1
    finally:
        stopped.start()
    eventually(lambda: not kazoo.exists(f"/brokers/topics/{topic}"), "gone", DEADLINE_S)
