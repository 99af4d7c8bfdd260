"""kafka-topics and kafka-configs with three brokers: their output line by line, as scripts parse it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import click.testing
import pytest

from barnabas.cli.kafka.options import ParsedOptions
from barnabas.cli.kafka.reassign import PartitionReassignments, TerseFailure
from barnabas.cli.main import cli
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigChange, ConfigResource
from barnabas.client.log_dir_admin import LogDirAdmin
from barnabas.client.view import TopicView
from barnabas.cluster.local import LocalCluster
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import BrokerId, TopicPartition
from barnabas.wire.messages.describe_configs import ResourceType
from support.waiting import eventually

NUMBERS = count()
PARTITION = re.compile(
    r"\tTopic: (\S+)\tPartition: (\d+)\tLeader: (\d+|none)\tReplicas: ([\d,]*)\tIsr: ([\d,]*)"
    r"\tElr: \tLastKnownElr: "
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"topic-{next(NUMBERS)}"


class CommandResult:
    def __init__(self, result: click.testing.Result) -> None:
        self.code = result.exit_code
        self.out = result.stdout
        self.err = result.stderr

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def controller(cluster: LocalCluster) -> str:
    """The controller's address. It knows a change as soon as it responds; other brokers learn of it later."""
    assert cluster.controller_id is not None
    return cluster.brokers[cluster.controller_id].address


def command(cluster: LocalCluster, name: str, line: str) -> CommandResult:
    where = ["--bootstrap-server", controller(cluster)]
    return CommandResult(click.testing.CliRunner().invoke(cli, [name, *where, *line.split()]))


def topics(cluster: LocalCluster, line: str) -> CommandResult:
    return command(cluster, "kafka-topics", line)


def configs(cluster: LocalCluster, line: str) -> CommandResult:
    return command(cluster, "kafka-configs", line)


def assert_done(result: CommandResult, note: str = "") -> list[str]:
    assert result.code == 0, result.out + result.err
    assert result.err == (f"note: {note}\n" if note else "")
    return result.lines


def view(cluster: LocalCluster, name: str) -> TopicView:
    with Cluster(controller(cluster)) as client:
        return client.topic(name)


def replicas(cluster: LocalCluster, name: str) -> list[tuple[int, ...]]:
    return [partition.replicas for partition in view(cluster, name).partitions]


# ---- kafka-topics


def test_topic_lifecycle_commands(cluster: LocalCluster, topic: str) -> None:
    made = topics(
        cluster,
        f"--create --topic {topic} --replication-factor 3 --partitions 3"
        " --config max.message.bytes=64000",
    )
    assert assert_done(made) == [f"Created topic {topic}."]
    head, *partitions = assert_done(topics(cluster, f"--describe --topic {topic}"))
    assert re.fullmatch(
        rf"Topic: {topic}\tTopicId: [\w-]{{22}}\tPartitionCount: 3\tReplicationFactor: 3"
        r"\tConfigs: max.message.bytes=64000",
        head,
    )
    assert [found[2] for line in partitions if (found := PARTITION.fullmatch(line))] == [*"012"]
    assert topic in assert_done(topics(cluster, "--list"))

    assert assert_done(topics(cluster, f"--alter --topic {topic} --partitions 4")) == []
    assert len(view(cluster, topic).partitions) == 4
    assert assert_done(topics(cluster, f"--delete --topic {topic}")) == []
    assert topic not in assert_done(topics(cluster, "--list"))


def test_replica_assignment_of_create_and_alter(cluster: LocalCluster, topic: str) -> None:
    assert_done(topics(cluster, f"--create --topic {topic} --replica-assignment 1:2:3,2:3:1"))
    assert replicas(cluster, topic) == [(1, 2, 3), (2, 3, 1)]
    line = f"--alter --topic {topic} --replica-assignment 1:2:3,2:3:1,3:2:1 --partitions 3"
    assert assert_done(topics(cluster, line)) == []
    assert replicas(cluster, topic) == [(1, 2, 3), (2, 3, 1), (3, 2, 1)]
    short = topics(cluster, f"--alter --topic {topic} --replica-assignment 1:2:3 --partitions 4")
    assert short.code == 1
    assert "InvalidReplicaAssignmentException" in short.err


def test_dot_in_name_warns_and_colliding_name_is_rejected(
    cluster: LocalCluster,
) -> None:
    warning, created = assert_done(topics(cluster, "--create --topic with.dot"))
    assert warning.startswith("WARNING: Due to limitations in metric names, topics with a period")
    assert created == "Created topic with.dot."
    result = topics(cluster, "--create --topic with_dot")
    assert result.code == 1
    assert result.lines[1].startswith("Error while executing topic command : topic 'with_dot' coll")
    assert_done(topics(cluster, r"--delete --topic with\.dot"))


def test_existing_topic_is_error_unless_if_not_exists(cluster: LocalCluster, topic: str) -> None:
    assert_done(topics(cluster, f"--create --topic {topic}"))
    again = topics(cluster, f"--create --topic {topic}")
    assert again.code == 1
    assert again.lines == [f"Error while executing topic command : topic '{topic}' already exists"]
    assert re.match(
        r"\[[\d-]{10} [\d:]{8},\d{3}\] ERROR org\.apache\.kafka\.common\.errors\."
        rf"TopicExistsException: topic '{topic}' already exists\n"
        r" \(org\.apache\.kafka\.tools\.TopicCommand\)\nhint:  .*--if-not-exists\n",
        again.err,
    )
    assert assert_done(topics(cluster, f"--create --topic {topic} --if-not-exists")) == []


@pytest.mark.parametrize("action", ["--delete", "--describe", "--alter --partitions 2"])
def test_missing_topic_is_error_unless_if_exists(cluster: LocalCluster, action: str) -> None:
    result = topics(cluster, f"{action} --topic nowhere")
    assert result.code == 1
    words = "Topic 'Optional[nowhere]' does not exist as expected"
    assert result.lines == [f"Error while executing topic command : {words}"]
    assert f"ERROR java.lang.IllegalArgumentException: {words}" in result.err
    assert assert_done(topics(cluster, f"{action} --topic nowhere --if-exists")) == []


def test_topic_option_accepts_lists_and_patterns(cluster: LocalCluster) -> None:
    for name in ("many-a", "many-b", "many-c"):
        assert_done(topics(cluster, f"--create --topic {name}"))
    assert assert_done(topics(cluster, "--list --topic many-a,many-c")) == ["many-a", "many-c"]
    described = assert_done(topics(cluster, "--describe --topic many-[ab]"))
    assert [line.split("\t")[0] for line in described if line.startswith("Topic")] == [
        "Topic: many-a",
        "Topic: many-b",
    ]
    assert assert_done(topics(cluster, "--alter --topic many-.* --partitions 2")) == []
    assert len(view(cluster, "many-b").partitions) == 2
    assert_done(topics(cluster, "--delete --topic many-.*"))
    assert assert_done(topics(cluster, "--list --topic many-.*")) == [""]  # so Kafka lists nothing


def test_describe_by_topic_id(cluster: LocalCluster, topic: str) -> None:
    assert_done(topics(cluster, f"--create --topic {topic}"))
    head, *_ = assert_done(topics(cluster, f"--describe --topic {topic}"))
    found = re.search(r"TopicId: (\S+)", head)
    assert found
    assert assert_done(topics(cluster, f"--describe --topic-id {found[1]}"))[0] == head
    wrong = topics(cluster, "--describe --topic-id abcdefghijklmnopqrstug")
    assert wrong.code == 1
    assert wrong.lines[0].endswith("TopicId 'abcdefghijklmnopqrstug' does not exist as expected")
    short = topics(cluster, "--describe --topic-id zz")
    assert "`zz` decoded as 1 bytes, which is not equal to the expected 16 bytes" in short.out


def test_describe_topics_with_overrides(cluster: LocalCluster, topic: str) -> None:
    assert_done(topics(cluster, f"--create --topic {topic}"))
    assert_done(topics(cluster, f"--create --topic {topic}-set --config flush.ms=5"))
    (line,) = assert_done(topics(cluster, f"--describe --topics-with-overrides --topic {topic}.*"))
    assert line.startswith(f"Topic: {topic}-set\t")
    assert line.endswith("\tConfigs: flush.ms=5")


def test_describe_filters_unhealthy_partitions() -> None:
    with LocalCluster(brokers=2) as small:

        def partitions_with(kind: str) -> list[tuple[str, str]]:
            found = [
                PARTITION.fullmatch(line)
                for line in assert_done(topics(small, f"--describe --{kind}"))
            ]
            return [(each[1], each[3]) for each in found if each is not None]

        assert small.controller_id is not None
        stays, goes = small.controller_id, 3 - small.controller_id
        two = f"--replica-assignment {goes}:{stays} --config min.insync.replicas=2"
        assert_done(topics(small, f"--create --topic two {two}"))
        assert_done(topics(small, f"--create --topic one --replica-assignment {goes}"))
        assert partitions_with("at-min-isr-partitions") == [("one", f"{goes}"), ("two", f"{goes}")]
        for kind in ("under-replicated", "unavailable", "under-min-isr"):
            assert partitions_with(f"{kind}-partitions") == []
        small.brokers[goes].kill()
        moved, dead = ("two", f"{stays}"), ("one", "none")
        eventually(lambda: moved in partitions_with("under-replicated-partitions"), "a copy less")
        assert partitions_with("unavailable-partitions") == [dead]
        assert partitions_with("under-min-isr-partitions") == [dead, moved]
        assert partitions_with("at-min-isr-partitions") == [dead]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--partitions 0", "The partitions must be greater than 0"),
        ("--partitions many", "Cannot parse argument 'many' of option partitions"),
        ("--replication-factor 0", "The replication factor must be between 1 and 32767 inclusive"),
        ("--config nosuch=1", "Unknown topic config name: nosuch"),
        (
            "--replica-assignment 1:1",
            "Partition replica lists may not contain duplicate entries: 1",
        ),
        ("--topic again", "Found multiple arguments for option topic, but you asked for only one"),
    ],
)
def test_invalid_create_prints_kafka_error(
    cluster: LocalCluster, topic: str, line: str, why: str
) -> None:
    result = topics(cluster, f"--create --topic {topic} {line}")
    assert result.code == 1
    assert result.lines == [f"Error while executing topic command : {why}"]
    assert topic not in assert_done(topics(cluster, "--list"))


def test_name_that_no_request_can_carry_is_rejected(cluster: LocalCluster) -> None:
    result = topics(cluster, "--create --topic caf\udce9")
    assert result.code == 1
    assert result.lines[0].endswith("cannot be represented in a request.")
    assert "InvalidTopicException" in result.err


def test_broker_errors_print_kafka_exception_names(cluster: LocalCluster, topic: str) -> None:
    wide = topics(cluster, f"--create --topic {topic} --replication-factor 4")
    assert "InvalidReplicationFactorException" in wide.err
    assert_done(topics(cluster, f"--create --topic {topic} --partitions 2"))
    fewer = topics(cluster, f"--alter --topic {topic} --partitions 1")
    assert fewer.code == 1
    assert "InvalidPartitionsException" in fewer.err


# ---- kafka-configs


def test_topic_configs_are_shown_with_source(cluster: LocalCluster, topic: str) -> None:
    assert_done(topics(cluster, f"--create --topic {topic} --config retention.ms=5"))
    expected = [
        f"Dynamic configs for topic {topic} are:",
        "  retention.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5}",
    ]
    assert assert_done(configs(cluster, f"--describe --topic {topic}")) == expected
    long_form = f"--describe --entity-type topics --entity-name {topic}"
    assert assert_done(configs(cluster, long_form)) == expected
    head, *rows = assert_done(configs(cluster, f"--describe --topic {topic} --all"))
    assert head == f"All configs for topic {topic} are:"
    assert (
        "  flush.messages=9223372036854775807 sensitive=false"
        " synonyms={DEFAULT_CONFIG:log.flush.interval.messages=9223372036854775807}" in rows
    )


def test_broker_configs_are_shown(cluster: LocalCluster) -> None:
    assert assert_done(configs(cluster, "--describe --entity-type brokers")) == [
        "Dynamic configs for broker 1 are:",
        "Dynamic configs for broker 2 are:",
        "Dynamic configs for broker 3 are:",
        "Default configs for brokers in the cluster are:",
    ]
    head, *rows = assert_done(configs(cluster, "--describe --broker 2 --all"))
    assert head == "All configs for broker 2 are:"
    assert any(row.startswith("  broker.id=2 sensitive=false ") for row in rows)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--describe --topic nowhere", "UnknownTopicOrPartitionException: there is no topic"),
        ("--describe --broker 9", "BrokerNotAvailableException: broker 9 is not alive"),
        (
            "--describe --entity-type client-metrics",
            "UnsupportedVersionException: settings of client-metrics are not supported",
        ),
    ],
)
def test_describe_configs_of_unknown_entity_is_error(
    cluster: LocalCluster, line: str, why: str
) -> None:
    result = configs(cluster, line)
    assert result.code == 1
    assert "Error while executing config command with args '--bootstrap-server" in result.err
    assert f"org.apache.kafka.common.errors.{why}" in result.err


def test_deleting_unset_config_is_one_line_error(cluster: LocalCluster, topic: str) -> None:
    assert_done(topics(cluster, f"--create --topic {topic} --config retention.ms=5"))
    result = configs(cluster, f"--alter --topic {topic} --delete-config flush.ms")
    assert (result.code, result.out, result.err) == (1, "", "Invalid config(s): flush.ms\n")


def test_topic_configs_are_altered(cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    assert_done(topics(cluster, f"--create --topic {topic} --config flush.ms=5"))
    alter = f"--alter --entity-type topics --entity-name {topic}"
    change = "--add-config cleanup.policy=[compact,delete],retention.ms=7 --delete-config flush.ms"
    done = [f"Completed updating config for topic {topic}."]
    assert assert_done(configs(cluster, f"{alter} {change}")) == done
    assert [
        line.split()[0] for line in assert_done(configs(cluster, f"--describe --topic {topic}"))
    ] == [
        "Dynamic",
        "cleanup.policy=compact,delete",
        "retention.ms=7",
    ]
    file = tmp_path / "settings.properties"
    file.write_text("segment.ms=9\n")
    assert assert_done(configs(cluster, f"{alter} --add-config-file {file}")) == done
    assert "  segment.ms=9 " in configs(cluster, f"--describe --topic {topic}").out


def test_rejected_topic_config_is_reported_like_kafka(cluster: LocalCluster, topic: str) -> None:
    assert_done(topics(cluster, f"--create --topic {topic}"))
    result = configs(cluster, f"--alter --topic {topic} --add-config x=y")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("Error while executing config command with args '")
    assert "org.apache.kafka.common.errors.InvalidConfigurationException: " in result.err


def test_broker_configs_are_altered(cluster: LocalCluster) -> None:
    alter = "--alter --broker 2 --add-config log.cleaner.backoff.ms=20000"
    assert assert_done(configs(cluster, alter)) == ["Completed updating config for broker 2."]
    line = (
        "  log.cleaner.backoff.ms=20000 sensitive=false"
        " synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.backoff.ms=20000,"
        " DEFAULT_CONFIG:log.cleaner.backoff.ms=15000}"
    )
    eventually(
        lambda: line in configs(cluster, "--describe --broker 2").lines, "broker 2 applies it"
    )
    result = configs(cluster, "--alter --broker 1 --delete-config log.cleaner.backoff.ms")
    assert (result.code, result.err) == (1, "Invalid config(s): log.cleaner.backoff.ms\n")
    assert_done(configs(cluster, "--alter --broker 2 --delete-config log.cleaner.backoff.ms"))
    default = "--alter --broker-defaults"
    done = ["Completed updating default config for brokers in the cluster."]
    assert assert_done(configs(cluster, f"{default} --add-config log.cleaner.backoff.ms=5")) == done
    shown = assert_done(configs(cluster, "--describe --broker-defaults"))
    assert shown[1].startswith("  log.cleaner.backoff.ms=5 ")
    assert (
        assert_done(configs(cluster, f"{default} --delete-config log.cleaner.backoff.ms")) == done
    )


def test_loggers_are_altered(cluster: LocalCluster) -> None:
    logger = "barnabas.maintenance"
    done = ["Completed updating config for broker-logger 1."]
    alter = "--alter --broker-logger 1"
    assert assert_done(configs(cluster, f"{alter} --add-config {logger}=ERROR")) == done
    shown = assert_done(configs(cluster, "--describe --broker-logger 1"))
    assert f"  {logger}=ERROR sensitive=false synonyms={{}}" in shown
    assert assert_done(configs(cluster, f"{alter} --delete-config {logger}")) == done
    result = configs(cluster, f"{alter} --add-config no.such.logger=INFO --delete-config other")
    assert (result.code, result.err) == (1, "Invalid broker logger(s): other,no.such.logger\n")


@pytest.mark.parametrize(
    ("entity", "text", "done"),
    [
        ("--user alice", "user-principal 'alice'", "config for user alice."),
        (
            "--entity-type users --entity-name bob --entity-type clients --entity-default",
            "user-principal 'bob', the default client-id",
            "config for user bob.",
        ),
        (
            "--client-defaults",
            "the default client-id",
            "default config for clients in the cluster.",
        ),
    ],
)
def test_quotas_are_altered(cluster: LocalCluster, entity: str, text: str, done: str) -> None:
    changed = "--add-config producer_byte_rate=1024,request_percentage=12.5"
    assert assert_done(configs(cluster, f"--alter {entity} {changed}")) == [
        f"Completed updating {done}"
    ]
    # Like Kafka's command, --describe of one user also looks for SCRAM credentials.
    no_scram = [NO_CREDENTIAL] if entity == "--user alice" else []
    assert assert_done(configs(cluster, f"--describe {entity}")) == [
        f"Quota configs for {text} are producer_byte_rate=1024.0, request_percentage=12.5",
        *no_scram,
    ]
    assert_done(configs(cluster, f"--alter {entity} --delete-config producer_byte_rate"))
    result = configs(cluster, f"--alter {entity} --delete-config producer_byte_rate")
    assert (result.code, result.err) == (1, "Invalid config(s): producer_byte_rate\n")
    assert_done(configs(cluster, f"--alter {entity} --delete-config request_percentage"))
    assert assert_done(configs(cluster, f"--describe {entity}")) == no_scram


NO_CREDENTIAL = (
    "Error retrieving SCRAM credential configs for user-principal 'alice': ExecutionException:"
    " org.apache.kafka.common.errors.ResourceNotFoundException: Attempt to describe a user"
    " credential that does not exist: alice"
)


def test_all_quotas_of_a_type_are_described(cluster: LocalCluster) -> None:
    for address, rate in (("10.0.0.7", 5), ("10.0.0.8", 6)):
        line = f"--alter --ip {address} --add-config connection_creation_rate={rate}"
        assert_done(configs(cluster, line))
    assert assert_done(configs(cluster, "--describe --entity-type ips")) == [
        "Quota configs for ip '10.0.0.7' are connection_creation_rate=5.0",
        "Quota configs for ip '10.0.0.8' are connection_creation_rate=6.0",
    ]


def test_rejected_quota_is_reported_like_kafka(cluster: LocalCluster) -> None:
    result = configs(cluster, "--alter --client web --add-config producer_byte_rate=-5")
    assert result.code == 1
    assert "producer_byte_rate: -5.0 is not allowed, it must be at least 0" in result.err
    assert assert_done(configs(cluster, "--describe --client web")) == []


# ---- kafka-reassign-partitions


def reassign(cluster: LocalCluster, line: str) -> list[str]:
    """Run a command that fails, and return its output."""
    result = command(cluster, "kafka-reassign-partitions", line)
    assert result.code == 1
    return result.lines


def test_reassign_names_a_file_that_cannot_be_read(cluster: LocalCluster) -> None:
    assert reassign(cluster, "--verify --reassignment-json-file missing.json") == [
        "Error: Unable to read file missing.json",
        "java.io.IOException: Unable to read file missing.json",
    ]


def test_reassign_rejects_an_unknown_log_directory(
    cluster: LocalCluster, topic: str, tmp_path: Path
) -> None:
    assert_done(topics(cluster, f"--create --topic {topic} --replica-assignment 1"))
    partition = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": ["/nowhere"]}
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    failed = reassign(cluster, f"--execute --reassignment-json-file {file}")
    assert failed[-2].startswith(f"Error: Failed to alter dir for {topic}-0-1: ")
    assert failed[-1].startswith("org.apache.kafka.server.common.AdminCommandFailedException: ")


def test_reassign_reports_a_topic_that_was_deleted_meanwhile(cluster: LocalCluster) -> None:
    gone = TopicPartition("gone", 0)
    with Cluster(controller(cluster)) as client:
        tool = PartitionReassignments(client, ParsedOptions(()))
        with pytest.raises(ApiError) as caught:
            tool.alter_configs(
                {ConfigResource(ResourceType.TOPIC, gone.topic): [ConfigChange("flush.ms", "1")]}
            )
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(TerseFailure, match=r"^Error reassigning partition\(s\):\ngone-0: "):
            tool.submit({gone: (1,)}, "Error reassigning partition(s):")


def test_log_directory_of_a_replica_that_is_not_created_in_time(
    cluster: LocalCluster, topic: str
) -> None:
    assert_done(topics(cluster, f"--create --topic {topic} --replica-assignment 2"))
    with Cluster(controller(cluster)) as client:
        directory = LogDirAdmin(client).describe_log_dirs([1])[BrokerId(1)][0].path
        tool = PartitionReassignments(client, ParsedOptions(()))
        with pytest.raises(TerseFailure) as caught:
            tool.start_moves({(TopicPartition(topic, 0), 1): directory}, 0)
    assert caught.value.message == (
        f"Timed out before log directory move could be started for: {topic}-0-1"
    )
