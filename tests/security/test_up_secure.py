"""`barnabas up --secure`, and `barnabas node` with secured listeners."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from barnabas.cluster.client_settings import kafka_settings
from barnabas.cluster.local_security import LocalSecurity
from barnabas.config.properties import escape_property
from barnabas.world.registry.zookeeper import ZooKeeperRegistry
from support.command import COMMAND, run
from support.process import ENVIRONMENT, ChildProcess
from tests.compatibility.optional import require
from tests.processes import command_line
from tests.tools import KAFKAJS, have_kafkajs, have_kcat
from tests.zookeeper import require_java

START_S = 180.0
RUN_S = 120
LAST_LINE = "Ctrl-C stops it"


class SecureCluster:
    """A running `barnabas up --secure`."""

    def __init__(self, data: Path, *options: str) -> None:
        self.data = data
        self.security = data / "security"
        self.process = ChildProcess(
            "the cluster",
            [*COMMAND, "up", "--secure", "--port=0", f"--data={data}", *options],
            log=data.with_name(f"{data.name}.log"),
            is_piped=True,
        )
        self.banner: list[str] = []
        while not self.banner or not self.banner[-1].startswith(LAST_LINE):
            self.banner.append(self.process.read_line(START_S))

    @property
    def password(self) -> str:
        return (self.security / "admin.password").read_text().strip()

    def block(self, name: str) -> str:
        """Return the lines of the banner for a client."""
        first = next(n for n, line in enumerate(self.banner) if line.startswith(f"  {name} "))
        last = self.banner.index("", first)
        lines = [
            self.banner[first].replace(name, " " * len(name), 1),
            *self.banner[first + 1 : last],
        ]
        return textwrap.dedent("\n".join(lines))

    def run_barnabas(self, *arguments: str) -> str:
        """Run a command with the environment and the servers of the banner."""
        export, command = map(shlex.split, self.block("Barnabas").splitlines())
        name, _, value = export[1].partition("=")
        ended = subprocess.run(
            [*COMMAND, *arguments, *command[-2:]],
            env={**ENVIRONMENT, name: value},
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait() == 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    running = SecureCluster(
        tmp_path_factory.mktemp("up") / "größe 1", "--brokers=2", "--topic=greetings:1:2"
    )
    yield running
    running.stop()


def test_files_are_private(cluster: SecureCluster) -> None:
    assert cluster.data.stat().st_mode & 0o777 == 0o700
    for path in cluster.security.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600, path


def test_commands_use_the_printed_settings(cluster: SecureCluster) -> None:
    assert "greetings" in cluster.run_barnabas("topics", "list")


def test_printed_line_works_in_kcat(cluster: SecureCluster) -> None:
    require(have_kcat(), "kcat")
    command = [*shlex.split(cluster.block("kcat")), "-m", "60"]
    found = subprocess.run(
        command, timeout=RUN_S, check=False, capture_output=True, text=True, env=ENVIRONMENT
    )
    assert found.returncode == 0, found.stderr
    assert 'topic "greetings" with 1 partitions' in found.stdout


def test_file_of_kcat_works_in_confluent_kafka(cluster: SecureCluster) -> None:
    """The file has lines NAME=VALUE, without escapes."""
    *_, option, path = shlex.split(cluster.block("kcat"))
    assert option == "-F"
    settings = dict(line.split("=", 1) for line in Path(path).read_text().splitlines())
    assert settings["security.protocol"] == "SASL_SSL"
    assert settings["sasl.password"] == cluster.password
    assert "greetings" in AdminClient(settings).list_topics(timeout=60).topics


KAFKA_PYTHON = """
producer.send("greetings", b"x").get(60)
producer.close()
"""
AIOKAFKA = """
await producer.start()
await producer.send_and_wait("greetings", b"x")
await producer.stop()
"""


def test_printed_lines_work_in_confluent_kafka(cluster: SecureCluster) -> None:
    run_python(cluster.block("confluent-kafka"))


def test_printed_lines_work_in_kafka_python(cluster: SecureCluster) -> None:
    run_python(cluster.block("kafka-python") + KAFKA_PYTHON)


def test_printed_lines_work_in_aiokafka(cluster: SecureCluster) -> None:
    body = textwrap.indent(cluster.block("aiokafka") + AIOKAFKA, "    ")
    run_python(f"import asyncio\nasync def main():\n{body}\nasyncio.run(main())")


def run_python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], timeout=RUN_S, check=True)


def test_printed_lines_work_in_kafkajs(cluster: SecureCluster) -> None:
    require(have_kafkajs(), "kafkajs")
    code = cluster.block("kafkajs") + textwrap.dedent(
        """
        const admin = kafka.admin()
        admin.connect().then(() => admin.listTopics()).then(topics => {
          console.log(JSON.stringify(topics))
          return admin.disconnect()
        })
        """
    )
    found = subprocess.run(
        ["node", "-e", code], cwd=KAFKAJS, timeout=RUN_S, check=True, capture_output=True, text=True
    )
    assert "greetings" in json.loads(found.stdout)


def test_password_is_not_in_process_list(cluster: SecureCluster) -> None:
    process = psutil.Process(cluster.process.pid)
    for each in [process, *process.children(recursive=True)]:
        assert cluster.password not in " ".join(command_line(each))


def test_later_start_keeps_password_and_does_not_print_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    first = SecureCluster(data, "--topic=orders")
    password = first.password
    assert f"{password}    (shown only at this first start)" in first.block("User")
    first.stop()
    rejected = run("up", "--port=0", f"--data={data}")
    assert rejected.returncode == 2
    assert "belongs to a secured cluster; add --secure" in rejected.stderr
    later = SecureCluster(data)
    assert later.password == password
    assert password not in "\n".join(later.banner)
    assert "orders" in later.run_barnabas("topics", "list")
    later.stop()


def test_ephemeral_cluster_gives_settings_to_its_command() -> None:
    script = 'test -r "$BARNABAS_CLIENT_CONFIG" && exec "$@" topics list'
    ended = run(
        *("up", "--secure", "--ephemeral", "--topic=orders", "--"),
        "sh",
        "-c",
        script,
        "sh",
        *COMMAND,
    )
    assert ended.returncode == 0, ended.stderr
    assert "orders" in ended.stdout


def test_open_listener_gives_a_warning() -> None:
    ended = run("up", "--ephemeral", "--override=listeners=PLAINTEXT://:0", "--", "true")
    assert ended.returncode == 0, ended.stderr
    assert "warning: open to all machines that reach it, without authentication" in ended.stderr


def test_brokers_as_processes_with_zookeeper(tmp_path: Path) -> None:
    require_java()
    cluster = SecureCluster(
        tmp_path / "data", "--with-zookeeper", "--brokers=2", "--topic=orders:1:2"
    )
    assert "orders" in cluster.run_barnabas("topics", "list")
    for broker in (1, 2):
        path = cluster.data / f"broker-{broker}.properties"
        assert path.stat().st_mode & 0o777 == 0o600
    test_password_is_not_in_process_list(cluster)
    cluster.stop()


async def create_users(security: LocalSecurity, zookeeper: str) -> None:
    registry = ZooKeeperRegistry(zookeeper, connection_timeout_ms=10_000)
    try:
        await security.create_users(registry)
    finally:
        await registry.close()


def test_node_with_secured_listeners(tmp_path: Path, chroot: str) -> None:
    security = LocalSecurity("SASL_SSL", tmp_path / "security")
    security.write_files()
    asyncio.run(create_users(security, chroot))
    settings = {
        "broker.id": "1",
        "listeners": "SASL_SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_SSL",
        "log.dirs": str(tmp_path / "data"),
        "zookeeper.connect": chroot,
        **security.broker_settings(["SASL_SSL"]),
    }
    config = tmp_path / "server.properties"
    config.write_text(
        "".join(f"{key}={escape_property(value)}\n" for key, value in settings.items())
    )
    node = ChildProcess(
        "the node",
        [*COMMAND, "node", str(config), "--brokers=2"],
        log=tmp_path / "node.log",
        is_piped=True,
    )
    line = node.read_line(START_S)
    assert line.startswith("Barnabas node is up: ")
    servers = line.rpartition(" at ")[2].partition(", data in ")[0]
    client = tmp_path / "client.properties"
    security.files.write_settings(client, kafka_settings(security.access(servers)))
    listed = run("brokers", "list", "-b", servers, "--command-config", str(client))
    assert listed.returncode == 0, listed.stderr
    node.send_signal(signal.SIGTERM)
    assert node.wait() == 0, node.describe()
