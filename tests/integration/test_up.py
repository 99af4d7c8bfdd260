"""`barnabas up` with several brokers: in one process, or in one process each with ZooKeeper."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from support.command import COMMAND, run
from support.process import ENVIRONMENT, STOP_SECONDS
from support.waiting import eventually
from tests.processes import assert_ended, command_line, is_java
from tests.zookeeper import require_java


@pytest.fixture
def java() -> None:
    require_java()


needs_zookeeper = pytest.mark.usefixtures("java")


class Up:
    """A running `barnabas up`."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self.process = process
        self.errors = errors
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.match(r"Barnabas is up: (\d+) brokers? at (\S+?)(?:, data in .+)?\n", line)
        assert found, f"{line!r}\n{errors.read_text()}"
        self.brokers = int(found[1])
        self.servers = found[2]

    def children(self) -> list[psutil.Process]:
        """The broker processes, by id."""
        brokers = [
            child
            for child in psutil.Process(self.process.pid).children()
            if "barnabas.cli.main" in command_line(child)
        ]
        return sorted(brokers, key=lambda child: command_line(child)[-1:])


@contextmanager
def up(tmp_path: Path, *arguments: str) -> Iterator[Up]:
    errors = tmp_path / "errors"
    with errors.open("w") as stream:
        process = subprocess.Popen(
            [*COMMAND, "up", "--port=0", f"--data={tmp_path / 'data'}", *arguments],
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
            env=ENVIRONMENT,
        )
    try:
        yield Up(process, errors)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def stop(running: Up) -> int:
    running.process.send_signal(signal.SIGTERM)
    return running.process.wait(STOP_SECONDS)


def kill_zookeeper(running: Up) -> None:
    (node,) = (
        process
        for process in psutil.Process(running.process.pid).children(recursive=True)
        if is_java(process)
    )
    node.kill()


def brokers_seen(servers: str) -> list[int]:
    with Cluster(servers) as cluster:
        return sorted(cluster.refresh([]).brokers)


def leaders(servers: str, topic: str) -> list[int]:
    with Cluster(servers) as cluster:
        (found,) = Admin(cluster).describe_topics([topic])
        return [partition.leader for partition in found.partitions]


def is_known_to_all(running: Up, topic: str) -> bool:
    for server in running.servers.split(","):
        with Cluster(server) as cluster:
            if topic not in cluster.refresh([topic]).topics:
                return False
    return True


def test_three_brokers_run_in_one_process_and_stop_cleanly(tmp_path: Path) -> None:
    with up(tmp_path, "--brokers=3", "--topic=orders:6:3", "--topic=orders:6:3") as running:
        assert running.brokers == 3
        assert running.servers.count(",") == 2
        assert not running.children()
        for address in running.servers.split(","):
            assert brokers_seen(address) == [1, 2, 3]
        assert set(leaders(running.servers, "orders")) == {1, 2, 3}
        with Cluster(running.servers) as cluster, Producer(cluster) as producer:
            producer.send("orders", b"hello")
            assert producer.flush()
        assert stop(running) == 0
    clean = sorted((tmp_path / "data").glob("broker-*/.kafka_cleanshutdown"))
    assert [path.parent.name for path in clean] == ["broker-1", "broker-2", "broker-3"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_requested_stop_exits_with_0(tmp_path: Path, number: signal.Signals) -> None:
    with up(tmp_path) as running:
        running.process.send_signal(number)
        assert running.process.wait(STOP_SECONDS) == 0


def test_restarted_up_keeps_topics(tmp_path: Path) -> None:
    with up(tmp_path, "--brokers=3", "--topic=orders:3:3") as running:
        assert stop(running) == 0
    with up(tmp_path, "--brokers=3", "--topic=orders:3:3") as running:
        eventually(
            lambda: -1 not in leaders(running.servers, "orders"), "all partitions have leaders"
        )


def test_brokers_missing_from_data_directory_are_reported(tmp_path: Path) -> None:
    with up(tmp_path, "--brokers=2", "--topic=orders:4:1") as running:
        assert stop(running) == 0
    with up(tmp_path) as running:
        errors = running.errors.read_text()
        assert "this data has brokers 1–2; " in errors
        assert "offline until they run: add --brokers 2" in errors
        assert stop(running) == 0


@needs_zookeeper
def test_zookeeper_data_is_not_opened_without_zookeeper(tmp_path: Path) -> None:
    with up(tmp_path, "--with-zookeeper") as running:
        assert stop(running) == 0
    ended = run("up", "--port=0", f"--data={tmp_path / 'data'}")
    assert ended.returncode == 2
    assert "this data belongs to a cluster with a ZooKeeper: add --with-zookeeper" in ended.stderr
    assert not (tmp_path / "data" / "registry").exists()


@needs_zookeeper
def test_broker_processes_survive_failure_of_one(tmp_path: Path) -> None:
    with up(
        tmp_path,
        *("--brokers=3", "--with-zookeeper", "--topic=orders:3:3"),
        "--override=zookeeper.session.timeout.ms=2000",
    ) as running:
        assert running.brokers == 3
        first, second, third = running.children()
        # The sessions are short: after a stall of the machine, brokers register again.
        eventually(lambda: brokers_seen(running.servers) == [1, 2, 3], "all three")
        assert (tmp_path / "data" / "broker-2.properties").is_file()
        # The killed broker may be the controller: others then learn of the topic from its successor.
        eventually(lambda: is_known_to_all(running, "orders"), "all know the topic")
        second.send_signal(signal.SIGKILL)
        eventually(
            lambda: "broker 2 was killed (SIGKILL)" in running.errors.read_text(), "reported"
        )
        assert running.process.poll() is None
        assert "the others detect this within 2 s (zookeeper.session.timeout.ms)" in (
            running.errors.read_text()
        )
        assert f"barnabas broker {tmp_path}/data/broker-2.properties" in running.errors.read_text()
        survivors = ",".join(running.servers.split(",")[::2])
        eventually(
            lambda: set(leaders(survivors, "orders")) <= {1, 3}, "the others lead", seconds=40
        )
        assert stop(running) == 0
        assert_ended([first, third], 10)


@needs_zookeeper
def test_broker_processes_end_with_parent(tmp_path: Path) -> None:
    with up(tmp_path, "--brokers=2", "--with-zookeeper") as running:
        everyone = psutil.Process(running.process.pid).children(recursive=True)
        assert len(running.children()) == 2
        os.kill(running.process.pid, signal.SIGKILL)
        assert_ended(everyone, 10)


def test_given_ensemble_and_chroot_are_used(tmp_path: Path, chroot: str) -> None:
    with up(tmp_path, f"--zookeeper={chroot}", "--brokers=2") as running:
        assert brokers_seen(running.servers) == [1, 2]
        listed = run("registry", "ls", "/brokers/ids", "--zookeeper", chroot)
        assert listed.stdout == "[1, 2]\n", listed.stderr
        assert stop(running) == 0


@needs_zookeeper
def test_failed_broker_start_shows_last_log_line(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "broker-1").write_text("a file, not a directory")
    ended = run("up", "--with-zookeeper", "--port=0", f"--data={tmp_path / 'data'}")
    assert ended.returncode == 1
    error, hint = ended.stderr.splitlines()[-2:]
    assert "broker 1 ended with exit code" in error
    assert error.count("error: ") == 1
    assert hint == f"hint:  see {tmp_path / 'data' / 'broker-1.log'}"


@needs_zookeeper
def test_lost_zookeeper_shows_next_step_and_brokers_stop_soon(tmp_path: Path) -> None:
    with up(tmp_path, "--brokers=3", "--with-zookeeper", "--topic=orders:6:3") as running:
        kill_zookeeper(running)
        eventually(
            lambda: "ZooKeeper was killed (SIGKILL)" in running.errors.read_text(), "reported"
        )
        assert (
            f"barnabas zookeeper --data {tmp_path}/data/zookeeper --port"
            in running.errors.read_text()
        )
        logs = [tmp_path / "data" / f"broker-{number}.log" for number in (1, 2, 3)]
        eventually(
            lambda: all("connection to ZooKeeper lost" in log.read_text() for log in logs),
            "noticed",
        )
        begin = time.monotonic()
        assert stop(running) == 0
        assert time.monotonic() - begin < 15
        assert all("broker stopped" in log.read_text() for log in logs)


@needs_zookeeper
def test_printed_command_restarts_zookeeper(tmp_path: Path) -> None:
    with up(tmp_path, "--with-zookeeper") as running:
        kill_zookeeper(running)
        eventually(lambda: "restarts it" in running.errors.read_text(), "reported")
        found = re.search(r"`barnabas (zookeeper [^`]+)`", running.errors.read_text())
        assert found
        again = subprocess.Popen(
            [*COMMAND, *found[1].split()], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        with again:
            try:
                log = tmp_path / "data" / "broker-1.log"
                eventually(
                    lambda: "reconnected to ZooKeeper" in log.read_text(), "back", seconds=30
                )
                assert stop(running) == 0
            finally:
                again.kill()


@needs_zookeeper
def test_second_signal_kills_brokers(tmp_path: Path) -> None:
    with up(tmp_path, "--brokers=2", "--with-zookeeper") as running:
        brokers = running.children()
        for broker in brokers:
            broker.suspend()  # so that it does not stop by itself
        running.process.send_signal(signal.SIGINT)
        eventually(lambda: "stopping ..." in running.errors.read_text(), "first signal handled")
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(10) == 130
        assert "second signal: killing the brokers" in running.errors.read_text()
        assert_ended(brokers, 10)


@pytest.mark.parametrize("form", [[], ["--zookeeper=127.0.0.1:1"]])
def test_data_directory_in_use_is_rejected(tmp_path: Path, form: list[str]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with (data / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711\n")
        lock.flush()
        ended = run("up", *form, "--port=0", f"--data={data}")
    assert ended.returncode == 1
    assert "another process (pid 4711) has this data directory open" in ended.stderr
    assert [path.name for path in data.iterdir()] == [".lock"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_waiting_for_zookeeper_is_reported_and_ends_with_signal(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    command = [*COMMAND, "up", "--port=0", f"--data={tmp_path}", "--zookeeper=127.0.0.1:1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    with process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert "broker 1: " in line
            assert "waiting for ZooKeeper hosts=127.0.0.1:1 reason=connection refused" in line
            begin = time.monotonic()
            process.send_signal(number)
            assert process.wait(30) == code
            assert time.monotonic() - begin < 8
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--brokers=0"], "0 is not in the range"),
        (["--with-zookeeper", "--zookeeper=here:2181"], "--with-zookeeper"),
        (["--brokers=3", "--port=65534"], "--port"),
        (["--brokers=3", "--override=broker.id=7"], "broker.id"),
        (["--topic=orders:x"], "orders:6:1"),
    ],
)
def test_invalid_options_fail_with_one_line(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    ended = run("up", f"--data={tmp_path}", *arguments)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
