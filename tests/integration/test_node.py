"""`barnabas node`: broker processes under one supervisor, with a real ZooKeeper."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import latest_offsets
from barnabas.client.producer import Producer
from barnabas.client.view import ClusterView
from barnabas.errors import ApiError
from barnabas.model import TopicPartition
from support.command import COMMAND, run
from support.process import ChildProcess
from support.waiting import eventually
from tests.processes import assert_ended, command_line

START_S = 60.0
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "zookeeper.session.timeout.ms": "2000",
    "barnabas.history.topic.enable": "false",
}


class Node:
    """A running `barnabas node`, whose brokers have free ports."""

    def __init__(self, directory: Path, zookeeper: str, first_id: int, brokers: int) -> None:
        self.data = directory / "data"
        self.ids = list(range(first_id, first_id + brokers))
        config = directory / f"server-{first_id}.properties"
        settings = {
            "broker.id": str(first_id),
            "log.dirs": str(self.data),
            "zookeeper.connect": zookeeper,
            **SETTINGS,
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.process = ChildProcess(
            "the node",
            [
                *COMMAND,
                "node",
                str(config),
                f"--brokers={brokers}",
                f"--override=broker.rack=r{first_id}",
            ],
            log=directory / f"node-{first_id}.log",
            is_piped=True,
        )
        line = self.process.read_line(START_S)
        assert line.startswith("Barnabas node is up: "), line
        self.servers = line.rpartition(" at ")[2].partition(", data in ")[0]

    def log(self) -> str:
        return self.process.log()

    def logged(self, line: str, count: int = 1) -> bool:
        return self.log().count(line) >= count

    def broker_process(self, broker_id: int) -> psutil.Process:
        """The current process of a broker."""
        (found,) = (
            child
            for child in psutil.Process(self.process.pid).children()
            if f"--override=broker.id={broker_id}" in command_line(child)
        )
        return found

    def processes(self) -> list[psutil.Process]:
        return [self.broker_process(each) for each in self.ids]


@contextmanager
def running_node(
    directory: Path, zookeeper: str, *, first_id: int = 1, brokers: int = 2
) -> Iterator[Node]:
    node = Node(directory, zookeeper, first_id, brokers)
    brokers_running = node.processes()
    try:
        yield node
    finally:
        node.process.kill()
        for each in brokers_running:
            if each.is_running():
                each.kill()


def create(servers: str, topic: str, partitions: int, replicas: int) -> None:
    with Cluster(servers) as cluster:
        wanted = NewTopic(name=topic, partitions=partitions, replication_factor=replicas)
        (outcome,) = Admin(cluster).create_topics([wanted])
        assert outcome.error is None, outcome.error


def view_of(servers: str, topics: list[str] | None = None) -> ClusterView:
    with Cluster(servers) as cluster:
        return cluster.refresh(topics)


def leaders(servers: str, topic: str) -> set[int]:
    """Return the leaders of all partitions; empty until the broker knows the topic."""
    found = view_of(servers, [topic]).topics.get(topic)
    return {each.leader for each in found.partitions} if found is not None else set()


def records_in(servers: str, topic: str, partitions: int) -> int:
    """Return the number of records; -1 while a partition has no leader."""
    try:
        with Cluster(servers, timeout_s=2.0) as cluster:
            wanted = [TopicPartition(topic, number) for number in range(partitions)]
            return sum(latest_offsets(cluster, wanted).values())
    except ApiError:
        return -1


def test_killed_broker_restarts_with_its_id_port_and_data(tmp_path: Path, chroot: str) -> None:
    with running_node(tmp_path, chroot) as node:
        create(node.servers, "orders", 2, 1)
        with Cluster(node.servers) as cluster, Producer(cluster) as producer:
            for number in range(10):
                producer.send("orders", b"hello", partition=number % 2)
            assert producer.flush()
        before = node.broker_process(2)
        before.kill()
        eventually(
            lambda: node.logged("broker crashed id=2 reason=was killed (SIGKILL) restart_in_s=1"),
            "reported",
        )
        eventually(lambda: records_in(node.servers, "orders", 2) == 10, "all records are back")
        assert node.broker_process(2).pid != before.pid
        servers = {f"{each.host}:{each.port}" for each in view_of(node.servers).brokers.values()}
        assert servers == set(node.servers.split(","))
        assert node.process.stop() == 0


def test_sigterm_stops_all_brokers_cleanly_and_the_controller_last(
    tmp_path: Path, chroot: str
) -> None:
    with running_node(tmp_path, chroot, brokers=3) as node:
        create(node.servers, "orders", 6, 3)
        controller = view_of(node.servers, []).controller
        processes = node.processes()
        assert node.process.stop(signal.SIGTERM) == 0, node.log()
        assert_ended(processes)
        assert node.logged("node stopped clean=true")
        stopped = [
            line for line in node.log().splitlines() if " barnabas.broker broker stopped" in line
        ]
        assert len(stopped) == 3
        assert stopped[-1].startswith(f"broker {controller} | ")
    clean = node.data.glob("broker-*/.kafka_cleanshutdown")
    assert sorted(path.parent.name for path in clean) == ["broker-1", "broker-2", "broker-3"]


def test_leaders_move_to_other_node_when_one_node_stops(tmp_path: Path, chroot: str) -> None:
    with (
        running_node(tmp_path, chroot, first_id=1) as first,
        running_node(tmp_path, chroot, first_id=11) as second,
    ):
        create(second.servers, "orders", 8, 2)
        eventually(lambda: leaders(second.servers, "orders") == {1, 2, 11, 12}, "all lead")
        partitions = view_of(second.servers, ["orders"]).topics["orders"].partitions
        assert all({each > 10 for each in one.replicas} == {False, True} for one in partitions)
        assert first.process.stop(signal.SIGINT) == 0, first.log()
        waves = [line for line in first.log().splitlines() if "stopping brokers ids=" in line]
        assert {line.rpartition("=")[2] for line in waves} == {"1", "2"}
        assert "controlled shutdown incomplete" not in first.log()
        eventually(lambda: leaders(second.servers, "orders") == {11, 12}, "the others lead")
        assert second.process.stop() == 0


def test_brokers_stop_cleanly_when_supervisor_is_killed(tmp_path: Path, chroot: str) -> None:
    with running_node(tmp_path, chroot) as node:
        processes = node.processes()
        os.kill(node.process.pid, signal.SIGKILL)
        assert_ended(processes)
    clean = node.data.glob("broker-*/.kafka_cleanshutdown")
    assert sorted(path.parent.name for path in clean) == ["broker-1", "broker-2"]


def test_second_signal_kills_brokers(tmp_path: Path, chroot: str) -> None:
    with running_node(tmp_path, chroot) as node:
        processes = node.processes()
        for each in processes:
            each.suspend()  # so that it does not stop by itself
        node.process.send_signal(signal.SIGTERM)
        eventually(lambda: node.logged("stopping brokers"), "first signal handled")
        assert node.process.stop(signal.SIGTERM) == 128 + signal.SIGTERM
        assert_ended(processes)
        assert node.logged("second signal, killing the brokers")


def test_broker_stopped_by_operator_stays_stopped(tmp_path: Path, chroot: str) -> None:
    with running_node(tmp_path, chroot) as node:
        first, second = node.processes()
        first.terminate()
        eventually(lambda: node.logged("broker ended id=1 exit_code=0"), "broker 1 has ended")
        assert node.process.is_running
        second.terminate()
        assert node.process.wait() == 0
        assert not node.logged("broker crashed")


def test_signal_during_start_ends_all_brokers(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    lines = ("broker.id=1", "listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path / 'data'}")
    config.write_text("\n".join([*lines, "zookeeper.connect=127.0.0.1:1"]))
    process = ChildProcess(
        "the node", [*COMMAND, "node", str(config), "--brokers=2"], log=tmp_path / "node.log"
    )
    try:
        eventually(
            lambda: process.log().count("waiting for ZooKeeper") == 2, "both wait for ZooKeeper"
        )
        brokers = psutil.Process(process.pid).children()
        assert process.stop(signal.SIGTERM) == 0, process.log()
        assert_ended(brokers)
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("", ["--brokers=0"], "0 is not in the range"),
        ("broker.id=1\n", [], "zookeeper.connect: not set"),
        ("zookeeper.connect=here:1\n", [], "broker.id: not set"),
        ("broker.id=1\nzookeeper.conect=here:1\n", [], "did you mean zookeeper.connect"),
        ("broker.id=1\nzookeeper.connect=here:1\n", ["--override=x"], "'x' is not KEY=VALUE"),
        (
            "broker.id=1\nzookeeper.connect=here:1\nlisteners=PLAINTEXT://:65535\n",
            ["--brokers=2"],
            "2 brokers need 2 ports from 65535 on",
        ),
    ],
)
def test_bad_input_fails_with_one_line(
    tmp_path: Path, text: str, arguments: list[str], said: str
) -> None:
    config = tmp_path / "server.properties"
    config.write_text(text)
    ended = run("node", str(config), *arguments)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "broker started" not in ended.stderr


def test_missing_file_is_reported(tmp_path: Path) -> None:
    ended = run("node", str(tmp_path / "absent.properties"))
    assert ended.returncode == 2
    assert "absent.properties: cannot be read: No such file or directory" in ended.stderr
