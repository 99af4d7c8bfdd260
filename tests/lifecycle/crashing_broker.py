"""One broker in its own process that kills itself or others with SIGKILL at a chosen point.

Commands arrive on the pipe, and each is answered. The process ends when the other end of the pipe closes, so that no
broker outlives its test.

    {"start": True}                                                     answered with its session when it is ready
    {"arm": ["before", "write", 2], "kill": [4711], "from_election": False}      pids; a point of None only counts
    {"labels": True}                                                    the writes and requests counted
    {"stop": True}                                                      answered after a clean stop; the process exits
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from barnabas.broker.broker import BrokerServer
from barnabas.cluster.real_world import real_world
from barnabas.config import BrokerConfig
from barnabas.config.load import load_broker_config
from barnabas.config.properties import parse_properties
from barnabas.world.registry.zookeeper import ZooKeeperRegistry, ZooKeeperSession
from tests.lifecycle.trap import (
    CrashPoint,
    Kind,
    Trap,
    TrappedNetwork,
    TrappedRegistry,
    When,
)
from tests.lifecycle.wire import Trace

CONNECTION_TIMEOUT_MS = 20_000


def main(properties: Path, trace: Path, log: Path, line: Connection) -> None:
    with log.open("ab") as last_words:
        os.dup2(last_words.fileno(), sys.stderr.fileno())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    config, _ = load_broker_config(parse_properties(properties.read_text(), str(properties)))
    asyncio.run(run_broker(config, trace, line))


async def run_broker(config: BrokerConfig, trace: Path, line: Connection) -> None:
    assert config.zookeeper_connect is not None
    trap = Trap()
    registry = ZooKeeperRegistry(
        config.zookeeper_connect, connection_timeout_ms=CONNECTION_TIMEOUT_MS
    )
    world = real_world(registry, config)
    trapped = TrappedRegistry(world.registry, trap)
    world = replace(
        world,
        registry=trapped,
        network=TrappedNetwork(world.network, trap, Trace(trace)),
    )
    broker = BrokerServer(config, world)
    commands: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    read_commands(line, commands)
    while True:
        command = await commands.get()
        if "start" in command:
            await broker.start()
            assert isinstance(trapped.session, ZooKeeperSession)
            line.send({"started": trapped.session.credentials})
        elif "arm" in command:
            point = command["arm"]
            trap.set(
                None if point is None else parse_point(point),
                killer(command["kill"]),
                from_election=command["from_election"],
            )
            line.send({"armed": True})
        elif "stop" in command:
            await broker.stop()
            line.send({"stopped": True})
            return
        else:
            line.send({"labels": trap.labels})


def parse_point(written: Sequence[Any]) -> CrashPoint:
    when, kind, number = written
    return CrashPoint(When(when), Kind(kind), number)


def killer(pids: Sequence[int]) -> Callable[[], bool]:
    def kill() -> bool:
        own = os.getpid()
        for pid in sorted(pids, key=lambda pid: pid == own):
            os.kill(pid, signal.SIGKILL)
            while pid != own and is_alive(pid):
                pass  # wait until it has exited, so that its last output comes before ours
        return False

    return kill


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def read_commands(line: Connection, commands: asyncio.Queue[dict[str, Any]]) -> None:
    loop = asyncio.get_running_loop()

    def read() -> None:
        with suppress(EOFError, OSError):
            while True:
                loop.call_soon_threadsafe(commands.put_nowait, line.recv())
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
