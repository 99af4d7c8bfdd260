"""One broker in a process of its own, that kills itself or others with SIGKILL at a chosen moment.

    python -m tests.lifecycle.crashing_broker <server.properties> <trace>

Commands come as JSON lines on standard input, and each is answered with one on standard output. The process ends with
its input, so that no broker outlives its test.

    {"start": true}                                                     answered when the broker can be used
    {"arm": ["before", "write", 2], "kill": [4711], "from_election": false}      pids; a point of null only counts
    {"labels": true}                                                    what was counted
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from barnabas.broker.broker import Broker
from barnabas.cluster import real_world
from barnabas.config import BrokerConfig
from barnabas.config.properties import parse_properties
from barnabas.world.registry.zookeeper import ZooKeeperRegistry
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


def main() -> None:
    properties, trace = map(Path, sys.argv[1:])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    config, _ = BrokerConfig.load(parse_properties(properties.read_text(), str(properties)))
    asyncio.run(live(config, trace))


async def live(config: BrokerConfig, trace: Path) -> None:
    assert config.zookeeper_connect is not None
    trap = Trap()
    registry = ZooKeeperRegistry(
        config.zookeeper_connect, connection_timeout_ms=CONNECTION_TIMEOUT_MS
    )
    world = real_world(registry, config)
    world = replace(
        world,
        registry=TrappedRegistry(world.registry, trap),
        network=TrappedNetwork(world.network, trap, Trace(trace)),
    )
    broker = Broker(config, world)
    commands: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    read_commands(commands)
    while True:
        command = await commands.get()
        if "start" in command:
            await broker.start()
            answer({"started": True})
        elif "arm" in command:
            point = command["arm"]
            trap.set(
                None if point is None else parse_point(point),
                killer(command["kill"]),
                from_election=command["from_election"],
            )
            answer({"armed": True})
        else:
            answer({"labels": trap.labels})


def parse_point(written: Sequence[Any]) -> CrashPoint:
    when, kind, number = written
    return CrashPoint(When(when), Kind(kind), number)


def killer(pids: Sequence[int]) -> Callable[[], bool]:
    def kill() -> bool:
        own = os.getpid()
        for pid in sorted(pids, key=lambda pid: pid == own):
            os.kill(pid, signal.SIGKILL)
            while pid != own and is_alive(pid):
                pass  # its last words must not come after ours
        return False

    return kill


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def read_commands(commands: asyncio.Queue[dict[str, Any]]) -> None:
    loop = asyncio.get_running_loop()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(commands.put_nowait, json.loads(line))
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()


def answer(content: dict[str, Any]) -> None:
    print(json.dumps(content), flush=True)


if __name__ == "__main__":
    main()
