import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator

import pytest

from barnabas.world.registry.zookeeper import ZooKeeperRegistry, ZooKeeperSession
from support import python_process

COMMAND = "from barnabas.cli.registry.commands import registry; registry()"


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return python_process.run(COMMAND, *arguments)


@pytest.fixture
async def session(chroot: str) -> AsyncIterator[ZooKeeperSession]:
    registry = ZooKeeperRegistry(chroot, connection_timeout_ms=10_000)
    session = await registry.connect(6000)
    await session.create("/brokers")
    await session.create("/brokers/topics")
    await session.create("/brokers/topics/test", b'{"version":1}')
    await session.create("/controller", b"{}", ephemeral=True)
    yield session
    await registry.close()


async def succeed(*arguments: str) -> str:
    done = await asyncio.to_thread(run, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


async def test_ls_get_and_stat_read_zookeeper(chroot: str, session: ZooKeeperSession) -> None:
    zookeeper = ("--zookeeper", chroot)
    assert await succeed("ls", "/", *zookeeper) == "[brokers, controller]\n"
    assert await succeed("ls", "-R", "/brokers", *zookeeper) == (
        "/brokers\n/brokers/topics\n/brokers/topics/test\n"
    )
    assert await succeed("get", "/brokers/topics/test", *zookeeper) == '{"version":1}\n'
    assert await succeed("get", "/brokers", *zookeeper) == "null\n"
    stat = json.loads(await succeed("stat", "/controller", "-o", "json", *zookeeper))
    assert stat["ephemeralOwner"] == f"{session.id:#x}"


async def test_missing_node_is_one_line(chroot: str, session: ZooKeeperSession) -> None:
    failed = await asyncio.to_thread(run, "get", "/x", "--zookeeper", chroot)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == "error: Node does not exist: /x\n"


@pytest.mark.parametrize("command", ["ls", "get", "stat", "watch"])
async def test_commands_do_not_create_the_chroot(
    chroot: str, session: ZooKeeperSession, command: str
) -> None:
    failed = await asyncio.to_thread(run, command, "/", "--zookeeper", f"{chroot}/missing")
    assert failed.returncode == 1
    assert "Node does not exist: /\n" in failed.stderr
    assert await session.exists("/missing") is None


async def test_watch_prints_changes(chroot: str, session: ZooKeeperSession) -> None:
    watch = python_process.start(COMMAND, "watch", "/brokers", "--zookeeper", chroot)
    with watch:
        assert watch.stdout is not None
        assert watch.stderr is not None
        output = watch.stdout

        async def next_change() -> str:
            text = await asyncio.to_thread(output.readline)
            return text.strip().partition(" ")[2]

        await asyncio.to_thread(watch.stderr.readline)
        await session.create("/brokers/ids")
        assert await next_change() == "created /brokers/ids"
        await session.set("/brokers", b"x")
        assert await next_change() == "changed /brokers"
        await session.create("/brokersish")
        await session.create("/brokers/ids/1")
        assert await next_change() == "created /brokers/ids/1"
        await session.delete("/brokers/ids/1")
        assert await next_change() == "deleted /brokers/ids/1"
        watch.send_signal(signal.SIGINT)
        rest, errors = await asyncio.to_thread(watch.communicate)
        assert (rest, errors) == ("", "")
    assert watch.returncode == 130
