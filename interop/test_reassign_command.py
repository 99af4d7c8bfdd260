"""Our kafka-reassign-partitions compared with Kafka's 3.9 on one cluster of ours: same command, same output.

Compares standard output and the exit code; of a stack trace, only its first line. Both commands read the same files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.reassignment_admin import ReassignmentAdmin
from barnabas.cluster.local import LocalCluster
from barnabas.java.find import Java
from interop.harness.jars import KAFKA_3_9, Jars
from interop.harness.tools import Outcome, Tools
from interop.test_kafka_commands import Command, ours
from support.waiting import eventually

COMMAND = "kafka-reassign-partitions"
OUR_TOPIC, THEIR_TOPIC = "moved-by-barnabas", "moved-by-kafka"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Cluster]:
    with Cluster(cluster.bootstrap_servers) as connected:
        topics = [
            NewTopic(name=name, assignment=((1, 2), (2, 3))) for name in (OUR_TOPIC, THEIR_TOPIC)
        ]
        assert all(outcome.error is None for outcome in Admin(connected).create_topics(topics))
        yield connected


@pytest.fixture(scope="module")
def theirs(
    tmp_path_factory: pytest.TempPathFactory, java: Java, kafka_jars: Jars, cluster: LocalCluster
) -> Command:
    scratch = tmp_path_factory.mktemp("reassign-command")
    tools = Tools(release=KAFKA_3_9, java=java, jars=kafka_jars, scratch=scratch)
    tools.create_class_archive(cluster.bootstrap_servers)
    return tools.run


def normalized(outcome: Outcome, topic: str) -> tuple[list[str], int]:
    """Output until the first line of a stack trace, and the exit code. T is the topic."""
    lines = outcome.stdout.replace(topic, "T").splitlines()
    frames = (number for number, line in enumerate(lines) if line.startswith("\tat "))
    shown = lines[: next(frames, len(lines))]
    if outcome.exit_code and shown and not shown[-1]:
        shown.pop()  # the end of a stack trace without frames
    return shown, outcome.exit_code


class Comparison:
    """Runs a command line with both commands, each with its own topic."""

    def __init__(self, client: Cluster, theirs: Command, directory: Path) -> None:
        self.client = client
        self.theirs = theirs
        self.directory = directory
        self.servers = ",".join(
            f"{each.host}:{each.port}" for each in client.refresh([]).brokers.values()
        )

    def write(self, name: str, content: object) -> None:
        """Write a file for each command; T is the topic. A string is written as it is."""
        text = content if isinstance(content, str) else json.dumps(content)
        for topic in (OUR_TOPIC, THEIR_TOPIC):
            path = self.directory / topic / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.replace("T", topic))

    def both(self, line: str) -> tuple[tuple[list[str], int], tuple[list[str], int]]:
        """Return (our output, Kafka's output). FILE/x is the file x of the command's topic."""
        found = []
        for topic, run in ((OUR_TOPIC, ours), (THEIR_TOPIC, self.theirs)):
            words = line.replace("FILE", str(self.directory / topic)).split()
            outcome = run(COMMAND, "--bootstrap-server", self.servers, *words)
            found.append(normalized(outcome, topic))
        return found[0], found[1]

    def same(self, line: str) -> list[str]:
        """Assert that both do the same; returns the output."""
        our, their = self.both(line)
        assert our == their, line
        return our[0]

    def wait(self) -> None:
        admin = ReassignmentAdmin(self.client)
        eventually(lambda: not admin.list_partition_reassignments(), "no partition moves")


@pytest.fixture
def comparison(client: Cluster, theirs: Command, tmp_path: Path) -> Comparison:
    return Comparison(client, theirs, tmp_path)


def partitions(*rows: tuple[int, list[int]]) -> dict[str, object]:
    items = [{"topic": "T", "partition": number, "replicas": brokers} for number, brokers in rows]
    return {"version": 1, "partitions": items}


def test_partitions_move_with_the_same_output(comparison: Comparison) -> None:
    assert comparison.same("--list") == ["No partition reassignments found."]
    comparison.write("plan.json", partitions((0, [3, 1]), (1, [1, 2])))
    comparison.same("--execute --reassignment-json-file FILE/plan.json --throttle 10000000")
    comparison.wait()
    verified = comparison.same(
        "--verify --reassignment-json-file FILE/plan.json --preserve-throttles"
    )
    assert verified[1] == "Reassignment of partition T-0 is completed."
    comparison.same("--verify --reassignment-json-file FILE/plan.json")
    comparison.write("one.json", partitions((0, [1, 2])))
    assert (
        "There is no active reassignment"
        in comparison.same("--verify --reassignment-json-file FILE/one.json")[1]
    )
    comparison.same("--cancel --reassignment-json-file FILE/one.json")
    comparison.same("--cancel --reassignment-json-file FILE/one.json --preserve-throttles")
    comparison.same("--execute --reassignment-json-file FILE/one.json")
    comparison.wait()
    comparison.same("--verify --reassignment-json-file FILE/one.json")


def test_generated_plan_has_the_same_shape(comparison: Comparison) -> None:
    comparison.write("topics.json", {"version": 1, "topics": [{"topic": "T"}]})
    our, their = comparison.both(
        "--generate --topics-to-move-json-file FILE/topics.json --broker-list 1,2,3"
    )

    def without_replicas(found: tuple[list[str], int]) -> list[str]:
        return [re.sub(r'"replicas":\[[\d,]+\]', "REPLICAS", line) for line in found[0]]

    assert without_replicas(our) == without_replicas(their)
    assert our[1] == their[1] == 0


@pytest.mark.parametrize(
    "plan",
    [
        partitions((0, [9, 1])),
        partitions((0, [1, 1])),
        partitions((0, [])),
        partitions(),
        partitions((7, [1])),
        partitions((0, [1]), (0, [2])),
        {"version": 1, "partitions": [{"topic": "missing", "partition": 0, "replicas": [1]}]},
        {"version": 2, "partitions": []},
        {
            "version": 1,
            "partitions": [{"topic": "T", "partition": 0, "replicas": [1], "log_dirs": []}],
        },
    ],
)
def test_unusable_plans_have_the_same_error(comparison: Comparison, plan: object) -> None:
    comparison.write("plan.json", plan)
    assert comparison.same("--execute --reassignment-json-file FILE/plan.json")


@pytest.mark.parametrize(
    "line",
    [
        "--execute --reassignment-json-file FILE/missing.json",
        "--generate --topics-to-move-json-file FILE/topics.json --broker-list 1,1",
        "--generate --topics-to-move-json-file FILE/topics.json --broker-list x",
        "--generate --topics-to-move-json-file FILE/topics.json --broker-list 1",
        "--generate --topics-to-move-json-file FILE/unknown.json --broker-list 1,2",
        "--execute --reassignment-json-file FILE/plan.json --throttle x",
        "--list --throttle 5",
        "--verify",
        "--list --execute",
    ],
)
def test_wrong_command_lines_have_the_same_error(comparison: Comparison, line: str) -> None:
    comparison.write("topics.json", {"version": 1, "topics": [{"topic": "T"}]})
    comparison.write("unknown.json", {"version": 1, "topics": [{"topic": "missing"}]})
    comparison.write("plan.json", partitions((0, [1, 2])))
    comparison.same(line)
