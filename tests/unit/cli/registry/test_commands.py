import json
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.world.clock import SystemClock
from barnabas.world.registry.embedded import EmbeddedRegistry, EmbeddedSession
from support import python_process

COMMAND = "from barnabas.cli.registry.commands import registry; registry()"


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return python_process.run(COMMAND, *arguments)


def succeed(*arguments: str) -> str:
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(tmp_path / "data")


@pytest.fixture
async def session(data: str) -> AsyncIterator[EmbeddedSession]:
    registry = EmbeddedRegistry(str(Path(data, "registry")), SystemClock())
    session = await registry.connect(6000)
    await session.create("/brokers")
    await session.create("/brokers/topics")
    await session.create("/brokers/topics/test", b'{"version":1,"partitions":{"0":[0]}}')
    await session.create("/controller", b"{}", ephemeral=True)
    yield session
    await registry.close()


async def test_ls_lists_children_while_broker_runs(data: str, session: EmbeddedSession) -> None:
    assert succeed("ls", "/", "--data", data) == "[brokers, controller]\n"
    assert succeed("ls", "/controller", "--data", data) == "[]\n"
    assert succeed("ls", "--data", data, "-R", "/brokers") == (
        "/brokers\n/brokers/topics\n/brokers/topics/test\n"
    )
    lines = succeed("ls", "-s", "/brokers", "--data", data).splitlines()
    assert lines[0] == "[topics]"
    assert lines[-1] == "numChildren = 1"


async def test_get_prints_data(data: str, session: EmbeddedSession) -> None:
    content = '{"version":1,"partitions":{"0":[0]}}'
    assert succeed("get", "/brokers/topics/test", "--data", data) == content + "\n"
    assert succeed("get", "/brokers", "--data", data) == "null\n"
    await session.set("/brokers", b"\xff\x00 caf\xc3\xa9")
    assert succeed("get", "/brokers", "--data", data) == "\\xff\x00 café\n"


async def test_stat_has_format_of_zkcli(data: str, session: EmbeddedSession) -> None:
    date = r"\w{3} \w{3} \d\d \d\d:\d\d:\d\d \S+ \d{4}"
    expected = (
        rf"cZxid = 0x4\nctime = {date}\nmZxid = 0x4\nmtime = {date}\npZxid = 0x4\n"
        r"cversion = 0\ndataVersion = 0\naclVersion = 0\nephemeralOwner = 0x0\n"
        r"dataLength = 36\nnumChildren = 0\n"
    )
    shown = succeed("stat", "/brokers/topics/test", "--data", data)
    assert re.fullmatch(expected, shown)
    shown = succeed("get", "-s", "/brokers/topics/test", "--data", data)
    assert re.fullmatch(expected, shown.partition("\n")[2])
    assert f"ephemeralOwner = {session.id:#x}" in succeed("stat", "/controller", "--data", data)


async def test_json_output(data: str, session: EmbeddedSession) -> None:
    listed = json.loads(succeed("ls", "-s", "/", "-o", "json", "--data", data))
    assert (listed["path"], listed["children"]) == ("/", ["brokers", "controller"])
    assert listed["stat"]["numChildren"] == 2
    got = json.loads(succeed("get", "/brokers", "-o", "json", "--data", data))
    assert got == {"path": "/brokers", "data": None}
    stat = json.loads(succeed("stat", "/controller", "-o", "json", "--data", data))
    assert stat["ephemeralOwner"] == f"{session.id:#x}"


@pytest.mark.parametrize("command", ["ls", "get", "stat"])
async def test_watch_repeats_until_interrupted(
    data: str, session: EmbeddedSession, command: str
) -> None:
    watcher = python_process.start(COMMAND, command, "/brokers", "-o", "yaml", "-w", "--data", data)
    try:
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == "---\n"
        while watcher.stdout.readline() != "---\n":
            pass  # the lines of the first document
        watcher.send_signal(signal.SIGINT)
        _, error = watcher.communicate(timeout=30)
        assert "Traceback" not in error
    finally:
        watcher.kill()


def test_ephemeral_nodes_of_dead_process_are_hidden(data: str) -> None:
    code = """if True:
        import asyncio, os, sys
        from barnabas.world.clock import SystemClock
        from barnabas.world.registry.embedded import EmbeddedRegistry
        async def main():
            session = await EmbeddedRegistry(sys.argv[1], SystemClock()).connect(6000)
            await session.create("/kept")
            await session.create("/controller", ephemeral=True)
            print("made", flush=True)
            sys.stdin.readline()
        asyncio.run(main())
    """
    process = python_process.start(code, str(Path(data, "registry")))
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "made\n"
        assert succeed("ls", "/", "--data", data) == "[controller, kept]\n"
        process.kill()
    assert succeed("ls", "/", "--data", data) == "[kept]\n"
    assert "numChildren = 1" in succeed("stat", "/", "--data", data)
    assert run("get", "/controller", "--data", data).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["get", "/x"], "error: Node does not exist: /x\n"),
        (["ls", "/x/y"], "error: Node does not exist: /x/y\n"),
        (["watch", "/x"], "error: Node does not exist: /x\n"),
    ],
)
async def test_missing_node_is_one_line_with_exit_code_1(
    data: str, session: EmbeddedSession, arguments: list[str], message: str
) -> None:
    failed = run(*arguments, "--data", data)
    assert (failed.returncode, failed.stdout, failed.stderr) == (1, "", message)


async def test_malformed_path_is_wrong_usage(data: str, session: EmbeddedSession) -> None:
    failed = run("get", "brokers", "--data", data)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr == "error: BadPath: brokers: a path must start with /\n"


async def test_data_and_zookeeper_together_are_rejected(
    data: str, session: EmbeddedSession
) -> None:
    failed = run("ls", "/", "--data", data, "--zookeeper", "127.0.0.1:2181")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr == "error: --data cannot be combined with --zookeeper\n"


def test_data_of_zookeeper_cluster_suggests_command(data: str) -> None:
    Path(data).mkdir()
    properties = "broker.id=1\nzookeeper.connect=127.0.0.1:2181/dev\n"
    Path(data, "broker-1.properties").write_text(properties)
    failed = run("ls", "/", "--data", data)
    assert failed.returncode == 1
    assert failed.stderr == (
        f"error: the registry of {data} is in a ZooKeeper: add --zookeeper 127.0.0.1:2181/dev\n"
    )


def test_directory_without_registry_explains_options(data: str) -> None:
    failed = run("ls", "/", "--data", data)
    assert failed.returncode == 1
    assert failed.stderr == (
        f"error: there is no registry in {data}: name the data directory of `barnabas up` with --data DIR, "
        "or a ZooKeeper with --zookeeper HOST:PORT\n"
    )
    Path(data, "registry").mkdir(parents=True)
    failed = run("ls", "/", "--data", data)
    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
    assert "no registry found" in failed.stderr
    Path(data, "registry", "registry.db").write_bytes(b"no database at all" * 99)
    failed = run("ls", "/", "--data", data)
    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
    assert "is corrupt" in failed.stderr


async def test_watch_prints_changes_in_order_up_to_count(
    data: str, session: EmbeddedSession
) -> None:
    watch = python_process.start(COMMAND, "watch", "/brokers", "--count", "4", "--data", data)
    with watch:
        assert watch.stdout is not None
        assert watch.stderr is not None
        assert watch.stderr.readline() == "Watching /brokers; Ctrl-C stops.\n"
        await session.create("/brokers/ids")
        await session.create("/brokersish")
        await session.set("/brokers", b"x")
        await session.create("/brokers/gone")
        await session.delete("/brokers/gone")
        lines = watch.stdout.read().splitlines()
    assert watch.returncode == 0
    assert [line.split(" ", 1)[1] for line in lines] == [
        "created /brokers/ids",
        "changed /brokers",
        "created /brokers/gone",
        "deleted /brokers/gone",
    ]
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", line) for line in lines)


async def test_ctrl_c_ends_watch_with_exit_code_130(data: str, session: EmbeddedSession) -> None:
    watch = python_process.start(COMMAND, "watch", "/", "-o", "json", "--data", data)
    with watch:
        assert watch.stdout is not None
        assert watch.stderr is not None
        watch.stderr.readline()
        _, made = await session.create("/seen")
        change = json.loads(watch.stdout.readline())
        assert (change["kind"], change["path"], change["zxid"]) == ("created", "/seen", made.czxid)
        watch.send_signal(signal.SIGINT)
        assert watch.stdout.read() == ""
        assert watch.stderr.read() == ""
    assert watch.returncode == 130
