"""Our kafka-topics and kafka-configs compared with Kafka's 3.9 on one cluster of ours: same command, same output.

Compares standard output and the exit code. Of standard error, the first line is compared if it is the result, or the
exception name if it is a log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import click.testing
import pytest

from barnabas.cli.main import cli
from barnabas.cluster.local import LocalCluster
from barnabas.java.find import Java
from interop.harness.jars import KAFKA_3_9, Jars
from interop.harness.kafka import KafkaCluster
from interop.harness.tools import Outcome, Tools
from support.command import run

EXCEPTION = re.compile(r"ERROR ([\w.$]+)")
Command = Callable[..., Outcome]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3) as running:
        yield running


@pytest.fixture(scope="module")
def servers(cluster: LocalCluster) -> str:
    """The controller's address: it knows a change as soon as it responds."""
    assert cluster.controller_id is not None
    return cluster.brokers[cluster.controller_id].address


@pytest.fixture(scope="module")
def theirs(
    tmp_path_factory: pytest.TempPathFactory, java: Java, kafka_jars: Jars, servers: str
) -> Command:
    scratch = tmp_path_factory.mktemp("commands")
    tools = Tools(release=KAFKA_3_9, java=java, jars=kafka_jars, scratch=scratch)
    tools.create_class_archive(servers)
    return tools.run


def ours(name: str, *arguments: str) -> Outcome:
    ended = click.testing.CliRunner().invoke(cli, [name, *arguments])
    return Outcome(exit_code=ended.exit_code, stdout=ended.stdout, stderr=ended.stderr)


def named(line: str, name: str, servers: str) -> list[str]:
    """The words of a command line; T is the topic."""
    words = [name if word == "T" else word for word in line.split()]
    return ["--bootstrap-server", servers, *words]


def normalized(outcome: Outcome, name: str) -> tuple[str, int]:
    """The output and exit code, without random parts."""
    text = re.sub(r"TopicId: \S{22}", "TopicId: ID", outcome.stdout)
    return text.replace(name, "T"), outcome.exit_code


LIFE = """
--create --topic T --replica-assignment 1:2:3,2:3:1 --config retention.ms=1000 --config flush.ms=5
--create --topic T
--create --topic T --if-not-exists
--list --topic T
--list --topic T --exclude-internal
--describe --topic T
--describe --topic T --topics-with-overrides
--describe --topic T --under-replicated-partitions
--describe --topic T --at-min-isr-partitions --unavailable-partitions
--alter --topic T --partitions 2
--alter --topic T --partitions 1
--alter --topic T --partitions 4 --replica-assignment 1:2:3,2:3:1,3:1:2
--alter --topic T --partitions 3 --replica-assignment 1:2:3,2:3:1,3:1:2
--alter --topic T --partitions 5
--describe --topic T
--delete --topic T
--list --topic T
--delete --topic T
--describe --topic T
--delete --topic T --if-exists
""".strip().splitlines()


def test_topic_lifecycle_output_matches_kafka(theirs: Command, servers: str) -> None:
    for line in LIFE:
        their_result = theirs("kafka-topics", *named(line, "life.of-theirs", servers))
        our_result = ours("kafka-topics", *named(line, "life.of-ours", servers))
        assert normalized(our_result, "life.of-ours") == normalized(
            their_result, "life.of-theirs"
        ), line
        assert EXCEPTION.findall(our_result.stderr) == EXCEPTION.findall(their_result.stderr), line


REFUSED = """
--create --topic new --partitions x
--create --topic new --partitions 0
--create --topic new --replication-factor 0
--create --topic new --replication-factor 4
--create --topic new --config nosuch=1
--create --topic new --config retention.ms
--create --topic new --config retention.ms=abc
--create --topic new --config retention.ms=-5
--create --topic new --config cleanup.policy=none
--create --topic new --config min.cleanable.dirty.ratio=3
--create --topic new --replica-assignment 1:1
--create --topic new --replica-assignment 1:2,3
--create --topic new --replica-assignment 1:x
--create --topic new --topic twice
--create --topic a/b
--describe --topic a(
--describe --topic-id zz
--describe --topic-id abcdefghijklmnopqrstug
--delete --topic nowhere
""".strip().splitlines()


@pytest.mark.parametrize("line", REFUSED)
def test_rejected_command_output_matches_kafka(theirs: Command, servers: str, line: str) -> None:
    arguments = named(line, "", servers)
    their_result, our_result = theirs("kafka-topics", *arguments), ours("kafka-topics", *arguments)
    assert their_result.stdout.startswith("Error while executing topic command : ")
    assert normalized(our_result, "T") == normalized(their_result, "T")
    assert EXCEPTION.findall(our_result.stderr) == EXCEPTION.findall(their_result.stderr)


WRONG = """
kafka-topics
kafka-topics --help
kafka-topics --list
kafka-topics --bootstrap-server HERE
kafka-topics --bootstrap-server HERE --list --create
kafka-topics --bootstrap-server HERE --nosuch
kafka-topics --bootstrap-server HERE --lis
kafka-topics --bootstrap-server HERE -x
kafka-topics --bootstrap-server HERE --create --topic
kafka-topics --bootstrap-server HERE --create
kafka-topics --bootstrap-server HERE --alter --topic t
kafka-topics --bootstrap-server HERE --alter --topic t --config x=y
kafka-topics --bootstrap-server HERE --alter --topic t --partitions 3 --delete-config x
kafka-topics --bootstrap-server HERE --create --topic t --replica-assignment 1 --partitions 1
kafka-topics --bootstrap-server HERE --describe --unavailable-partitions --topics-with-overrides
kafka-topics --bootstrap-server HERE --describe --if-exists
kafka-topics --bootstrap-server HERE --delete --topic t --exclude-internal
kafka-configs
kafka-configs --bootstrap-server HERE
kafka-configs --bootstrap-server HERE --describe
kafka-configs --bootstrap-server HERE --describe --entity-type nosuch
kafka-configs --bootstrap-server HERE --describe --broker x
kafka-configs --bootstrap-server HERE --describe --topic a --entity-type topics
kafka-configs --bootstrap-server HERE --describe --topic a --add-config b=c
kafka-configs --bootstrap-server HERE --alter --topic a
kafka-configs --bootstrap-server HERE --alter --topic a --add-config b
kafka-configs --bootstrap-server HERE --alter --entity-type topics --add-config a=b
kafka-configs --bootstrap-server HERE --alter --client a --add-config b=c
kafka-configs --bootstrap-server HERE --alter --client a --delete-config b,d
kafka-configs --bootstrap-server HERE --alter --user a --add-config b=c
kafka-configs --bootstrap-server HERE --alter --user a --delete-config b
kafka-configs --bootstrap-server HERE --alter --user a --add-config producer_byte_rate=x
kafka-configs --bootstrap-server HERE --alter --user a --delete-config producer_byte_rate
kafka-configs --bootstrap-server HERE --alter --ip 10.0.0.1 --add-config b=c
kafka-configs --bootstrap-server HERE --describe --ip no.such.host.invalid
kafka-configs --bootstrap-server HERE --alter --broker-logger 1 --add-config no.such.logger=INFO
kafka-configs --bootstrap-server HERE --alter --broker 1 --delete-config log.cleaner.threads
kafka-leader-election
kafka-leader-election --help
kafka-leader-election --bootstrap-server HERE
kafka-leader-election --bootstrap-server HERE --election-type nosuch --all-topic-partitions
kafka-leader-election --bootstrap-server HERE --election-type preferred
kafka-leader-election --bootstrap-server HERE --election-type preferred --topic a
kafka-leader-election --bootstrap-server HERE --election-type preferred --all-topic-partitions --partition 1
kafka-leader-election --bootstrap-server HERE --election-type preferred --topic a --all-topic-partitions
kafka-leader-election --bootstrap-server HERE --election-type preferred --topic a --partition x
""".strip().splitlines()


@pytest.mark.parametrize("line", WRONG)
def test_usage_error_output_matches_kafka(theirs: Command, servers: str, line: str) -> None:
    name, *words = line.replace("HERE", servers).split()
    their_result, our_result = theirs(name, *words), ours(name, *words)
    assert their_result.exit_code == our_result.exit_code == 1
    assert their_result.stdout == our_result.stdout == ""
    assert our_result.stderr.splitlines()[0] == their_result.stderr.splitlines()[0]


SHOWN = """
--describe --topic configured
--describe --topic configured --all
--describe --entity-type topics --entity-name configured
--describe --entity-type brokers
--describe --broker 1
--describe --broker 1 --all
--describe --broker-defaults
""".strip().splitlines()


def test_config_output_matches_kafka(theirs: Command, servers: str) -> None:
    line = "--create --topic configured --config cleanup.policy=compact,delete --config flush.ms=5"
    assert ours("kafka-topics", *named(line, "", servers)).exit_code == 0
    for line in SHOWN:
        arguments = named(line, "", servers)
        their_result, our_result = (
            theirs("kafka-configs", *arguments),
            ours("kafka-configs", *arguments),
        )
        assert their_result.exit_code == our_result.exit_code == 0, line
        assert our_result.stdout == their_result.stdout, line
    line = "--alter --topic configured --delete-config retention.ms"
    arguments = named(line, "", servers)
    their_result, our_result = (
        theirs("kafka-configs", *arguments),
        ours("kafka-configs", *arguments),
    )
    assert (our_result.exit_code, our_result.stderr) == (
        their_result.exit_code,
        their_result.stderr,
    )


CHANGED = """
kafka-configs --alter --topic changed --add-config cleanup.policy=[compact,delete],flush.ms=5
kafka-configs --describe --topic changed
kafka-configs --alter --topic changed --delete-config flush.ms,cleanup.policy
kafka-configs --describe --topic changed
kafka-configs --alter --topic nowhere --add-config flush.ms=5
kafka-configs --alter --topic changed --add-config no.such.setting=5
kafka-configs --alter --broker 1 --add-config log.cleaner.backoff.ms=20000
kafka-configs --alter --broker-defaults --add-config log.cleaner.backoff.ms=30000
kafka-configs --describe --broker-defaults
kafka-configs --alter --broker-defaults --delete-config log.cleaner.backoff.ms
kafka-configs --alter --broker-logger 1 --add-config barnabas.maintenance=ERROR
kafka-configs --alter --user alice --add-config producer_byte_rate=1024
kafka-configs --describe --client app
kafka-configs --alter --client app --add-config request_percentage=12.5,consumer_byte_rate=10000000
kafka-configs --describe --client app
kafka-configs --alter --client-defaults --add-config consumer_byte_rate=1
kafka-configs --describe --client-defaults
kafka-configs --alter --user a --client-defaults --add-config consumer_byte_rate=1
kafka-configs --describe --entity-type users --entity-name a --entity-type clients
kafka-configs --alter --ip 10.0.0.1 --add-config connection_creation_rate=5
kafka-configs --describe --entity-type ips
kafka-leader-election --election-type preferred --topic changed --partition 0
kafka-leader-election --election-type unclean --topic changed --partition 0
kafka-leader-election --election-type PREFERRED --all-topic-partitions
""".strip().splitlines()


def test_changes_match_kafka(theirs: Command, servers: str) -> None:
    """Each command runs with both tools. The first run makes the change; the second repeats it."""
    ours("kafka-topics", *named("--create --topic changed", "", servers))
    for line in CHANGED:
        name, *words = line.split()
        arguments = ["--bootstrap-server", servers, *words]
        their_result, our_result = theirs(name, *arguments), ours(name, *arguments)
        if "--delete-config" in words:  # nothing is left to delete
            assert their_result.exit_code == 0, their_result
            assert our_result.exit_code == 1, our_result
            continue
        assert (our_result.exit_code, sorted(our_result.lines)) == (
            their_result.exit_code,
            sorted(their_result.lines),
        ), line


def test_failed_election_matches_kafka(theirs: Command, servers: str) -> None:
    line = "--election-type preferred --topic nowhere --partition 3"
    arguments = named(line, "", servers)
    their_result = theirs("kafka-leader-election", *arguments)
    our_result = ours("kafka-leader-election", *arguments)
    assert their_result.exit_code == our_result.exit_code == 1
    assert our_result.stdout == their_result.stdout
    assert our_result.stderr.splitlines()[0] == their_result.stderr.splitlines()[0]


def test_our_commands_work_on_kafka_cluster(theirs: Command, kafka_cluster: KafkaCluster) -> None:
    servers = kafka_cluster.bootstrap_servers

    def both(name: str, line: str) -> Outcome:
        arguments = named(line, "", servers)
        their_result, our_result = theirs(name, *arguments), ours(name, *arguments)
        assert normalized(our_result, "T") == normalized(their_result, "T"), line
        return our_result

    def succeed(name: str, line: str) -> list[str]:
        done = ours(name, *named(line, "", servers))
        assert done.exit_code == 0, done
        return done.lines

    settings = "--config retention.ms=5 --config flush.ms=6"
    create = f"--create --topic on.kafka --partitions 2 --replication-factor 3 {settings}"
    assert succeed("kafka-topics", create)[-1] == "Created topic on.kafka."
    assert both("kafka-topics", "--create --topic on.kafka").exit_code == 1
    assert both("kafka-topics", "--create --topic wide --replication-factor 9").exit_code == 1
    assert both("kafka-topics", r"--describe --topic on\.kafka").exit_code == 0
    succeed("kafka-topics", "--alter --topic on.kafka --partitions 3")
    assert both("kafka-topics", "--alter --topic on.kafka --partitions 2").exit_code == 1

    changed = "--add-config retention.ms=7,cleanup.policy=[compact,delete] --delete-config flush.ms"
    alter = "--alter --entity-type topics --entity-name on.kafka"
    assert succeed("kafka-configs", f"{alter} {changed}") == [
        "Completed updating config for topic on.kafka."
    ]
    shown = both("kafka-configs", "--describe --topic on.kafka")
    assert [line.split()[0] for line in shown.lines[1:]] == [
        "cleanup.policy=compact,delete",
        "retention.ms=7",
    ]
    (broker, *_) = (
        str(number) for number in sorted(found.broker_id for found in kafka_cluster.brokers)
    )
    assert succeed(
        "kafka-configs", f"--alter --broker {broker} --add-config log.cleaner.threads=2"
    ) == [f"Completed updating config for broker {broker}."]
    assert "log.cleaner.threads=2 " in both("kafka-configs", f"--describe --broker {broker}").stdout
    assert succeed(
        "kafka-configs", "--alter --broker-defaults --add-config log.cleaner.threads=3"
    ) == ["Completed updating default config for brokers in the cluster."]
    assert both("kafka-configs", "--describe --entity-type brokers").exit_code == 0
    # Kafka rejects every later change of a broker whose cleaner threads the default more than doubles.
    succeed("kafka-configs", "--alter --broker-defaults --delete-config log.cleaner.threads")
    assert (
        ours(
            "kafka-configs", *named("--alter --topic on.kafka --add-config x=y", "", servers)
        ).exit_code
        == 1
    )
    quota = "--add-config producer_byte_rate=1024"
    assert succeed("kafka-configs", f"--alter --client-defaults {quota}") == [
        "Completed updating default config for clients in the cluster."
    ]
    assert both("kafka-configs", "--describe --client-defaults").lines == [
        "Quota configs for the default client-id are producer_byte_rate=1024.0"
    ]
    assert both("kafka-configs", f"--describe --broker-logger {broker}").exit_code == 0
    elect = "--election-type preferred --topic on.kafka --partition 0"
    assert both("kafka-leader-election", elect).lines == [
        "Valid replica already elected for partitions on.kafka-0"
    ]
    succeed("kafka-topics", r"--delete --topic on\.kafka")


def test_our_config_commands_work_on_kafka_cluster(kafka_cluster: KafkaCluster) -> None:
    servers = kafka_cluster.bootstrap_servers

    def succeed(*arguments: str) -> list[str]:
        done = ours(*arguments, "-b", servers)
        assert done.exit_code == 0, done
        return done.lines

    topic = ("--topic", "configured.on.kafka")
    succeed("topics", "create", topic[1], "--replication-factor", "3")
    altered = succeed(
        "configs", "alter", *topic, "retention.ms=5", "--append", "cleanup.policy=compact"
    )
    assert [line.split() for line in altered[2:]] == [
        ["retention.ms", "604800000", "5"],
        ["cleanup.policy", "delete", "delete,compact"],
    ]
    described = succeed("configs", "describe", *topic)
    assert ["retention.ms", "5", "topic", "604800000"] in [line.split() for line in described]
    assert not any("…" in line for line in succeed("configs", "describe", *topic, "--all"))
    assert succeed("configs", "reset", *topic, "retention.ms")[0].startswith("reset topic ")
    broker = str(min(found.broker_id for found in kafka_cluster.brokers))
    of_broker = succeed("configs", "describe", "--broker", broker, "--all")
    assert not any("…" in line for line in of_broker)  # nothing is cut in a pipe
    rejected = run("configs", "alter", "--broker", broker, "broker.id=7", "-b", servers)
    assert (rejected.returncode, rejected.stdout) == (1, "")
    assert "hint:  broker.id is read from server.properties" in rejected.stderr
    succeed("configs", "alter", "--user", "alice", "producer_byte_rate=1024")
    assert "producer_byte_rate" in succeed("configs", "describe", "--user", "alice")[2]
    succeed("configs", "reset", "--user", "alice", "producer_byte_rate")
    assert succeed("elect-leaders", *topic)[0].startswith("no election is needed: 1 partition")
