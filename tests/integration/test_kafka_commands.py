"""kafka-topics and kafka-configs against three brokers: what a script sees, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count

import click.testing
import pytest

from barnabas.cli.main import cli
from barnabas.client.cluster import Cluster
from barnabas.client.view import TopicView
from barnabas.cluster.local import LocalCluster
from support.waiting import eventually

NUMBERS = count()
PARTITION = re.compile(
    r"\tTopic: (\S+)\tPartition: (\d+)\tLeader: (\d+|none)\tReplicas: ([\d,]*)\tIsr: ([\d,]*)"
    r"\tElr: N/A\tLastKnownElr: N/A"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"topic-{next(NUMBERS)}"


class Told:
    def __init__(self, result: click.testing.Result) -> None:
        self.code = result.exit_code
        self.out = result.stdout
        self.err = result.stderr

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def controller(cluster: LocalCluster) -> str:
    """Who answers a change has seen it; the other brokers hear of it a moment later."""
    assert cluster.controller_id is not None
    return cluster.brokers[cluster.controller_id].address


def command(cluster: LocalCluster, name: str, line: str) -> Told:
    where = ["--bootstrap-server", controller(cluster)]
    return Told(click.testing.CliRunner().invoke(cli, [name, *where, *line.split()]))


def topics(cluster: LocalCluster, line: str) -> Told:
    return command(cluster, "kafka-topics", line)


def configs(cluster: LocalCluster, line: str) -> Told:
    return command(cluster, "kafka-configs", line)


def done(told: Told) -> list[str]:
    assert told.code == 0, told.out + told.err
    assert told.err == ""
    return told.lines


def view(cluster: LocalCluster, name: str) -> TopicView:
    with Cluster(controller(cluster)) as client:
        return client.topic(name)


def replicas(cluster: LocalCluster, name: str) -> list[tuple[int, ...]]:
    return [partition.replicas for partition in view(cluster, name).partitions]


# ---- kafka-topics


def test_a_topic_is_created_described_listed_expanded_and_deleted(
    cluster: LocalCluster, topic: str
) -> None:
    made = topics(
        cluster,
        f"--create --topic {topic} --replication-factor 3 --partitions 3"
        " --config max.message.bytes=64000",
    )
    assert done(made) == [f"Created topic {topic}."]
    head, *partitions = done(topics(cluster, f"--describe --topic {topic}"))
    assert re.fullmatch(
        rf"Topic: {topic}\tTopicId: [\w-]{{22}}\tPartitionCount: 3\tReplicationFactor: 3"
        r"\tConfigs: max.message.bytes=64000",
        head,
    )
    assert [found[2] for line in partitions if (found := PARTITION.fullmatch(line))] == [*"012"]
    assert topic in done(topics(cluster, "--list"))

    assert done(topics(cluster, f"--alter --topic {topic} --partitions 4")) == []
    assert len(view(cluster, topic).partitions) == 4
    assert done(topics(cluster, f"--delete --topic {topic}")) == []
    assert topic not in done(topics(cluster, "--list"))


def test_replicas_go_where_the_list_says_and_it_begins_with_the_partitions_that_are_there(
    cluster: LocalCluster, topic: str
) -> None:
    done(topics(cluster, f"--create --topic {topic} --replica-assignment 1:2:3,2:3:1"))
    assert replicas(cluster, topic) == [(1, 2, 3), (2, 3, 1)]
    line = f"--alter --topic {topic} --replica-assignment 1:2:3,2:3:1,3:2:1 --partitions 3"
    assert done(topics(cluster, line)) == []
    assert replicas(cluster, topic) == [(1, 2, 3), (2, 3, 1), (3, 2, 1)]
    short = topics(cluster, f"--alter --topic {topic} --replica-assignment 1:2:3 --partitions 4")
    assert short.code == 1
    assert "InvalidReplicaAssignmentException" in short.err


def test_a_name_with_a_dot_is_warned_of_and_one_that_collides_is_refused(
    cluster: LocalCluster,
) -> None:
    warning, created = done(topics(cluster, "--create --topic with.dot"))
    assert warning.startswith("WARNING: Due to limitations in metric names, topics with a period")
    assert created == "Created topic with.dot."
    told = topics(cluster, "--create --topic with_dot")
    assert told.code == 1
    assert told.lines[1].startswith("Error while executing topic command : topic 'with_dot' coll")
    done(topics(cluster, r"--delete --topic with\.dot"))


def test_an_existing_topic_is_an_error_unless_that_is_fine(
    cluster: LocalCluster, topic: str
) -> None:
    done(topics(cluster, f"--create --topic {topic}"))
    again = topics(cluster, f"--create --topic {topic}")
    assert again.code == 1
    assert again.lines == [f"Error while executing topic command : topic '{topic}' already exists"]
    assert re.match(
        r"\[[\d-]{10} [\d:]{8},\d{3}\] ERROR org\.apache\.kafka\.common\.errors\."
        rf"TopicExistsException: topic '{topic}' already exists\n"
        r" \(org\.apache\.kafka\.tools\.TopicCommand\)\nhint:  .*--if-not-exists\n",
        again.err,
    )
    assert done(topics(cluster, f"--create --topic {topic} --if-not-exists")) == []


@pytest.mark.parametrize("action", ["--delete", "--describe", "--alter --partitions 2"])
def test_a_topic_that_is_missing_is_an_error_unless_that_is_fine(
    cluster: LocalCluster, action: str
) -> None:
    told = topics(cluster, f"{action} --topic nowhere")
    assert told.code == 1
    words = "Topic 'Optional[nowhere]' does not exist as expected"
    assert told.lines == [f"Error while executing topic command : {words}"]
    assert f"ERROR java.lang.IllegalArgumentException: {words}" in told.err
    assert done(topics(cluster, f"{action} --topic nowhere --if-exists")) == []


def test_several_topics_and_expressions_may_be_named(cluster: LocalCluster) -> None:
    for name in ("many-a", "many-b", "many-c"):
        done(topics(cluster, f"--create --topic {name}"))
    assert done(topics(cluster, "--list --topic many-a,many-c")) == ["many-a", "many-c"]
    described = done(topics(cluster, "--describe --topic many-[ab]"))
    assert [line.split("\t")[0] for line in described if line.startswith("Topic")] == [
        "Topic: many-a",
        "Topic: many-b",
    ]
    assert done(topics(cluster, "--alter --topic many-.* --partitions 2")) == []
    assert len(view(cluster, "many-b").partitions) == 2
    done(topics(cluster, "--delete --topic many-.*"))
    assert done(topics(cluster, "--list --topic many-.*")) == [""]  # so Kafka lists nothing


def test_a_topic_is_found_by_its_id(cluster: LocalCluster, topic: str) -> None:
    done(topics(cluster, f"--create --topic {topic}"))
    head, *_ = done(topics(cluster, f"--describe --topic {topic}"))
    found = re.search(r"TopicId: (\S+)", head)
    assert found
    assert done(topics(cluster, f"--describe --topic-id {found[1]}"))[0] == head
    wrong = topics(cluster, "--describe --topic-id abcdefghijklmnopqrstug")
    assert wrong.code == 1
    assert wrong.lines[0].endswith("TopicId 'abcdefghijklmnopqrstug' does not exist as expected")
    short = topics(cluster, "--describe --topic-id zz")
    assert "`zz` decoded as 1 bytes, which is not equal to the expected 16 bytes" in short.out


def test_only_topics_with_settings_of_their_own_are_described(
    cluster: LocalCluster, topic: str
) -> None:
    done(topics(cluster, f"--create --topic {topic}"))
    done(topics(cluster, f"--create --topic {topic}-set --config flush.ms=5"))
    (line,) = done(topics(cluster, f"--describe --topics-with-overrides --topic {topic}.*"))
    assert line.startswith(f"Topic: {topic}-set\t")
    assert line.endswith("\tConfigs: flush.ms=5")


def test_partitions_in_trouble_are_found_while_they_are_in_it() -> None:
    with LocalCluster(brokers=2) as small:

        def troubled(kind: str) -> list[tuple[str, str]]:
            found = [
                PARTITION.fullmatch(line) for line in done(topics(small, f"--describe --{kind}"))
            ]
            return [(each[1], each[3]) for each in found if each is not None]

        assert small.controller_id is not None
        stays, goes = small.controller_id, 3 - small.controller_id
        two = f"--replica-assignment {goes}:{stays} --config min.insync.replicas=2"
        done(topics(small, f"--create --topic two {two}"))
        done(topics(small, f"--create --topic one --replica-assignment {goes}"))
        assert troubled("at-min-isr-partitions") == [("one", f"{goes}"), ("two", f"{goes}")]
        for kind in ("under-replicated", "unavailable", "under-min-isr"):
            assert troubled(f"{kind}-partitions") == []
        small.brokers[goes].kill()
        moved, dead = ("two", f"{stays}"), ("one", "none")
        eventually(lambda: moved in troubled("under-replicated-partitions"), "a copy less")
        assert troubled("unavailable-partitions") == [dead]
        assert troubled("under-min-isr-partitions") == [dead, moved]
        assert troubled("at-min-isr-partitions") == [dead]


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
def test_what_cannot_be_created_is_refused_with_kafkas_words(
    cluster: LocalCluster, topic: str, line: str, why: str
) -> None:
    told = topics(cluster, f"--create --topic {topic} {line}")
    assert told.code == 1
    assert told.lines == [f"Error while executing topic command : {why}"]
    assert topic not in done(topics(cluster, "--list"))


def test_the_brokers_refusals_come_with_the_names_scripts_look_for(
    cluster: LocalCluster, topic: str
) -> None:
    wide = topics(cluster, f"--create --topic {topic} --replication-factor 4")
    assert "InvalidReplicationFactorException" in wide.err
    done(topics(cluster, f"--create --topic {topic} --partitions 2"))
    fewer = topics(cluster, f"--alter --topic {topic} --partitions 1")
    assert fewer.code == 1
    assert "InvalidPartitionsException" in fewer.err


# ---- kafka-configs


def test_the_settings_of_a_topic_are_shown_with_where_they_come_from(
    cluster: LocalCluster, topic: str
) -> None:
    done(topics(cluster, f"--create --topic {topic} --config retention.ms=5"))
    expected = [
        f"Dynamic configs for topic {topic} are:",
        "  retention.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5}",
    ]
    assert done(configs(cluster, f"--describe --topic {topic}")) == expected
    long_form = f"--describe --entity-type topics --entity-name {topic}"
    assert done(configs(cluster, long_form)) == expected
    head, *rows = done(configs(cluster, f"--describe --topic {topic} --all"))
    assert head == f"All configs for topic {topic} are:"
    assert (
        "  flush.messages=9223372036854775807 sensitive=false"
        " synonyms={DEFAULT_CONFIG:log.flush.interval.messages=9223372036854775807}" in rows
    )


def test_the_settings_of_brokers_are_shown(cluster: LocalCluster) -> None:
    assert done(configs(cluster, "--describe --entity-type brokers")) == [
        "Dynamic configs for broker 1 are:",
        "Dynamic configs for broker 2 are:",
        "Dynamic configs for broker 3 are:",
        "Default configs for brokers in the cluster are:",
    ]
    head, *rows = done(configs(cluster, "--describe --broker 2 --all"))
    assert head == "All configs for broker 2 are:"
    assert any(row.startswith("  broker.id=2 sensitive=false ") for row in rows)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--describe --topic nowhere", "UnknownTopicOrPartitionException: there is no topic"),
        ("--describe --broker 9", "BrokerNotAvailableException: broker 9 is not alive"),
        (
            "--describe --user me",
            "UnsupportedVersionException: settings of users are not supported",
        ),
    ],
)
def test_settings_that_nobody_has_are_an_error(cluster: LocalCluster, line: str, why: str) -> None:
    told = configs(cluster, line)
    assert told.code == 1
    assert "Error while executing config command with args '--bootstrap-server" in told.err
    assert f"org.apache.kafka.common.errors.{why}" in told.err


def test_taking_away_what_is_not_set_is_one_line(cluster: LocalCluster, topic: str) -> None:
    done(topics(cluster, f"--create --topic {topic} --config retention.ms=5"))
    told = configs(cluster, f"--alter --topic {topic} --delete-config flush.ms")
    assert (told.code, told.out, told.err) == (1, "", "Invalid config(s): flush.ms\n")


def test_a_change_that_the_brokers_do_not_serve_names_the_request_and_the_next_step(
    cluster: LocalCluster, topic: str
) -> None:
    done(topics(cluster, f"--create --topic {topic} --config retention.ms=5"))
    for change in ("--add-config retention.ms=6", "--delete-config retention.ms"):
        told = configs(cluster, f"--alter --entity-type topics --entity-name {topic} {change}")
        assert told.code == 1
        assert "UnsupportedVersionException: The node does not support INCREMENTAL_ALT" in told.err
        assert "hint:  these brokers cannot change settings at run time" in told.err
