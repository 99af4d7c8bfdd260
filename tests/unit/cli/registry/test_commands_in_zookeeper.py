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


async def test_ls_get_and_stat_ask_the_zookeeper(chroot: str, session: ZooKeeperSession) -> None:
    where = ("--zookeeper", chroot)
    assert await succeed("ls", "/", *where) == "[brokers, controller]\n"
    assert await succeed("ls", "-R", "/brokers", *where) == (
        "/brokers\n/brokers/topics\n/brokers/topics/test\n"
    )
    assert await succeed("get", "/brokers/topics/test", *where) == '{"version":1}\n'
    assert await succeed("get", "/brokers", *where) == "null\n"
    stat = json.loads(await succeed("stat", "/controller", "-o", "json", *where))
    assert stat["ephemeralOwner"] == f"{session.id:#x}"


async def test_what_is_not_there_is_one_line(chroot: str, session: ZooKeeperSession) -> None:
    failed = await asyncio.to_thread(run, "get", "/x", "--zookeeper", chroot)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == "error: Node does not exist: /x\n"


@pytest.mark.parametrize("command", ["ls", "get", "stat", "watch"])
async def test_looking_does_not_make_a_chroot(
    chroot: str, session: ZooKeeperSession, command: str
) -> None:
    failed = await asyncio.to_thread(run, command, "/", "--zookeeper", f"{chroot}/missing")
    assert failed.returncode == 1
    assert "Node does not exist: /\n" in failed.stderr
    assert await session.exists("/missing") is None


async def test_watch_tells_changes_as_they_happen(chroot: str, session: ZooKeeperSession) -> None:
    watch = python_process.start(COMMAND, "watch", "/brokers", "--zookeeper", chroot)
    with watch:
        assert watch.stdout is not None
        assert watch.stderr is not None
        told = watch.stdout

        async def line() -> str:
            text = await asyncio.to_thread(told.readline)
            return text.strip().partition(" ")[2]

        await asyncio.to_thread(watch.stderr.readline)
        await session.create("/brokers/ids")
        assert await line() == "created /brokers/ids"
        await session.set("/brokers", b"x")
        assert await line() == "changed /brokers"
        await session.create("/brokersish")
        await session.create("/brokers/ids/1")
        assert await line() == "created /brokers/ids/1"
        await session.delete("/brokers/ids/1")
        assert await line() == "deleted /brokers/ids/1"
        watch.send_signal(signal.SIGINT)
        rest, complaints = await asyncio.to_thread(watch.communicate)
        assert (rest, complaints) == ("", "")
    assert watch.returncode == 130
