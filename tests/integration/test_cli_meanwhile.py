"""Another client changes the cluster while a command waits for the answer to its prompt, or for a broker."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator

import pytest

from barnabas import LocalCluster
from barnabas.cli.main import run_command
from barnabas.cli.reassign import draining
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.producer import Producer
from barnabas.client.reassignment_admin import ReassignmentAdmin
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition

SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    # Small fetches and short quota windows: a throttle takes effect after a few kilobytes.
    "replication.quota.window.num": 2,
    "replica.fetch.max.bytes": 20_000,
}


class Answer(io.TextIOBase):
    """Standard input of a terminal. The answer to a prompt is "y", after another client has acted."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def isatty(self) -> bool:
        return True

    def readline(self, _size: int | None = -1, /) -> str:  # type: ignore[override]
        self.act()
        return "y\n"


class Prompted:
    """Runs commands in this process. `act` runs while the prompt of the command is open."""

    def __init__(self, client: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client = client
        self.servers = ",".join(f"{host}:{port}" for host, port in client.bootstrap)
        self.monkeypatch = monkeypatch

    def run(self, *arguments: str, act: Callable[[], object] = lambda: None) -> int:
        self.monkeypatch.setattr(sys, "stdin", Answer(act))
        return run_command([*arguments, "-b", self.servers])

    def create(self, name: str, *replicas: int) -> TopicPartition:
        (made,) = Admin(self.client).create_topics([NewTopic(name=name, assignment=(replicas,))])
        assert made.error is None
        return TopicPartition(name, 0)

    def delete(self, name: str) -> None:
        (deleted,) = Admin(self.client).delete_topics([name])
        assert deleted.error is None


@pytest.fixture(scope="module")
def client() -> Iterator[Cluster]:
    with (
        LocalCluster(brokers=2, settings=SETTINGS) as running,
        Cluster(running.bootstrap_servers) as connected,
    ):
        yield connected


@pytest.fixture
def prompted(client: Cluster, monkeypatch: pytest.MonkeyPatch) -> Prompted:
    return Prompted(client, monkeypatch)


Captured = pytest.CaptureFixture[str]


def test_topic_is_deleted_by_another_client(prompted: Prompted, capsys: Captured) -> None:
    prompted.create("short", 1)
    assert prompted.run("topics", "delete", "short", act=lambda: prompted.delete("short")) == 1
    assert "error: UNKNOWN_TOPIC_OR_PARTITION: " in capsys.readouterr().err


def test_group_is_deleted_by_another_client(prompted: Prompted, capsys: Captured) -> None:
    prompted.create("read", 1)
    assert (
        prompted.run("groups", "reset", "readers", "--to-latest", "--topic", "read", "--execute")
        == 0
    )
    admin = GroupAdmin(prompted.client)
    delete = ("groups", "delete", "readers")
    assert prompted.run(*delete, act=lambda: admin.delete_groups(["readers"])) == 1
    assert "error: GROUP_ID_NOT_FOUND" in capsys.readouterr().err


def test_topic_to_reassign_is_deleted(prompted: Prompted, capsys: Captured) -> None:
    prompted.create("moved", 1)
    reassign = ("reassign", "run", "--brokers", "2", "--topic", "moved")
    assert prompted.run(*reassign, act=lambda: prompted.delete("moved")) == 1
    out = capsys.readouterr().out
    assert "reassigned 0 partitions" in out
    assert "moved-0 failed: UNKNOWN_TOPIC_OR_PARTITION" in out


def test_reassignment_is_cancelled_by_another_client(prompted: Prompted, capsys: Captured) -> None:
    partition = prompted.create("slow", 1)
    with Producer(prompted.client) as producer:
        for _ in range(20):
            producer.send("slow", b"x" * 10_000)
            producer.flush()
    slowly = ("--topic", "slow", "--throttle", "1KB/s", "--no-wait", "--yes")
    assert prompted.run("reassign", "run", "--brokers", "2", *slowly) == 0
    admin = ReassignmentAdmin(prompted.client)

    def cancel() -> None:
        assert admin.alter_partition_reassignments({partition: None}) == {partition: None}

    assert prompted.run("reassign", "cancel", "slow", act=cancel) == 1
    assert "cannot cancel slow-0: NO_REASSIGNMENT_IN_PROGRESS" in capsys.readouterr().out


def test_drained_broker_gets_a_new_replica(
    prompted: Prompted, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "ROUNDS_MAX", 1)
    prompted.create("early", 2)
    decommission = ("brokers", "decommission", "2")
    assert prompted.run(*decommission, act=lambda: prompted.create("late", 2)) == 1
    error = capsys.readouterr().err
    assert "REASSIGNMENT_IN_PROGRESS: broker 2 still has 1 replica, such as late-0\n" in error
    assert f"hint:  see `barnabas reassign status -b {prompted.servers}`, then run this ag" in error


def test_stopped_broker_stays_in_the_cluster(prompted: Prompted) -> None:
    with pytest.raises(ApiError) as caught:
        draining.await_departure(prompted.client, 1, 4711, timeout_s=0)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert caught.value.message == "broker 1 (pid 4711) is still in the cluster"
