"""`barnabas elect-leaders` and `barnabas kafka-leader-election` with three brokers, one of which restarts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.main import run_command
from barnabas.client.cluster import Cluster
from barnabas.cluster.local import LocalCluster
from barnabas.errors import BarnabasError
from barnabas.model import NO_LEADER
from support.command import COMMAND
from support.process import ENVIRONMENT
from support.waiting import eventually
from tests.terminal import on_terminal

TOPIC = "orders"
PREFERRED = "--election-type preferred"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {"auto.leader.rebalance.enable": False}
    with LocalCluster(brokers=3, settings=settings) as running:
        yield running


class Commands:
    """Runs commands in this process. `out` and `err` are the output of the last one."""

    def __init__(self, cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = cluster
        self.capsys = capsys
        self.out = self.err = ""

    @property
    def servers(self) -> str:
        """The controller's address. It knows the result of an election as soon as it responds."""
        assert self.cluster.controller_id is not None
        return self.cluster.brokers[self.cluster.controller_id].address

    def run(self, *arguments: str) -> int:
        code = run_command([*arguments, "-b", self.servers])
        self.out, self.err = self.capsys.readouterr()
        return code

    def ok(self, *arguments: str) -> list[str]:
        assert self.run(*arguments) == 0, self.err
        return self.out.splitlines()

    def kafka(self, line: str) -> tuple[int, list[str]]:
        where = ["--bootstrap-server", self.servers]
        code = run_command(["kafka-leader-election", *where, *line.split()])
        self.out, self.err = self.capsys.readouterr()
        return code, self.out.splitlines()

    def partitions(self, name: str = TOPIC) -> list[Any]:
        with Cluster(self.servers) as client:
            return list(client.topic(name).partitions)

    def leaders(self, name: str = TOPIC) -> list[int]:
        return [each.leader for each in self.partitions(name)]

    def wait(self, condition: Any, what: str) -> None:
        def holds() -> bool:
            try:
                return bool(condition())
            except (BarnabasError, AssertionError):  # there is no controller, or it is not alive
                return False

        eventually(holds, what)


@pytest.fixture
def commands(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(cluster, capsys)


@pytest.fixture
def moved(commands: Commands, cluster: LocalCluster) -> int:
    """The broker that restarted: it is the preferred leader of one partition, and another broker leads it."""
    assignment = ("--replica-assignment", "1:2:3,2:3:1,3:1:2")
    commands.ok("topics", "create", TOPIC, *assignment, "--if-not-exists")
    commands.wait(lambda: commands.leaders() == [1, 2, 3], "every broker leads one partition")
    broker = next(number for number in cluster.brokers if number != cluster.controller_id)
    cluster.brokers[broker].stop()
    cluster.brokers[broker].start()
    commands.wait(
        lambda: all(len(each.isr) == 3 for each in commands.partitions()),
        "all replicas are in sync",
    )
    assert broker not in commands.leaders()
    return broker


def test_preferred_election_moves_leadership_back(commands: Commands, moved: int) -> None:
    index = moved - 1
    before = commands.leaders()[index]
    row = [TOPIC, str(index), str(before), str(moved)]
    dry = commands.ok("elect-leaders", "--topic", TOPIC, "--dry-run")
    assert dry[0] == "would elect 1 preferred leader; 2 partitions have their preferred leader"
    assert dry[2].split() == row
    assert commands.leaders()[index] == before

    done = commands.ok("elect-leaders", "--topic", TOPIC)
    assert done[0] == "elected 1 preferred leader; 2 partitions have their preferred leader"
    assert done[2].split() == row
    assert commands.leaders() == [1, 2, 3]
    assert commands.ok("elect-leaders", "--topic", TOPIC) == [
        "no election is needed: 3 partitions have their preferred leader"
    ]


def test_election_of_all_partitions_is_the_default(commands: Commands, moved: int) -> None:
    commands.ok("elect-leaders", "-o", "json")
    document = json.loads(commands.out)
    assert [each["after"] for each in document["partitions"]] == [moved]
    assert commands.leaders() == [1, 2, 3]


def test_election_of_partitions_in_a_file(commands: Commands, moved: int, tmp_path: Path) -> None:
    file = tmp_path / "partitions.json"
    listed = [{"topic": TOPIC, "partition": number} for number in range(3)]
    file.write_text(json.dumps({"partitions": listed}))
    assert commands.ok("elect-leaders", "--file", str(file))[0].startswith("elected 1 preferred")
    assert commands.leaders() == [1, 2, 3]


def test_kafka_command_prints_kafka_lines(commands: Commands, moved: int) -> None:
    one = f"{PREFERRED} --topic {TOPIC} --partition {moved - 1}"
    assert commands.kafka(one) == (
        0,
        [f"Successfully completed leader election (PREFERRED) for partitions {TOPIC}-{moved - 1}"],
    )
    assert commands.kafka(one) == (
        0,
        [f"Valid replica already elected for partitions {TOPIC}-{moved - 1}"],
    )
    assert commands.kafka(f"{PREFERRED} --all-topic-partitions") == (0, [])
    assert commands.leaders() == [1, 2, 3]


def test_unknown_partitions_are_errors(commands: Commands, moved: int) -> None:
    assert commands.run("elect-leaders", "--topic", "ordres") == 1
    assert "hint:  did you mean 'orders'?" in commands.err
    assert commands.run("elect-leaders", "--topic", f"{TOPIC}:7") == 1
    assert "has no partition 7" in commands.err
    code, lines = commands.kafka(f"{PREFERRED} --topic nowhere --partition 0")
    assert code == 1
    assert lines[0].startswith(
        "Error completing leader election (PREFERRED) for partition: nowhere-0:"
        " org.apache.kafka.common.errors.UnknownTopicOrPartitionException: "
    )
    assert commands.err.splitlines()[0] == "1 replica(s) could not be elected"


def test_unclean_election_elects_a_replica_that_is_not_in_sync(commands: Commands) -> None:
    with LocalCluster(brokers=3) as cluster:
        other = Commands(cluster, commands.capsys)
        first, second = (number for number in cluster.brokers if number != cluster.controller_id)
        other.ok("topics", "create", "lossy", "--replica-assignment", f"{first}:{second}")
        other.wait(lambda: other.leaders("lossy") == [first], "the topic has a leader")
        cluster.brokers[second].kill()
        other.wait(
            lambda: other.partitions("lossy")[0].isr == (first,), "the follower leaves the ISR"
        )
        cluster.brokers[first].kill()
        other.wait(lambda: other.partitions("lossy")[0].is_offline, "the partition has no leader")
        unclean = ("elect-leaders", "--unclean", "--topic", "lossy")
        assert other.run(*unclean, "--yes") == 1
        assert "ELIGIBLE_LEADERS_NOT_AVAILABLE" in other.err

        cluster.brokers[second].start()
        other.wait(
            lambda: "would elect 1 unclean leader" in other.ok(*unclean, "--dry-run")[0],
            "the follower is alive",
        )
        assert other.run(*unclean) == 2
        assert "--yes: required for unclean elections without a terminal" in other.err
        asked = [*COMMAND, *unclean, "-b", other.servers]
        code, seen = on_terminal(asked, environment=ENVIRONMENT, typed="n\n")
        assert code == 1
        assert "not in sync; records that it does not have are lost." in seen
        assert "no leader was elected" in seen
        assert other.leaders("lossy") == [NO_LEADER]
        (_, _, row) = other.ok(*unclean, "--yes")
        assert row.split()[:4] == ["lossy", "0", "none", str(second)]
        assert other.leaders("lossy") == [second]
