"""`barnabas broker` on a disk that forgets.

python -m tests.faults.chaos.forgetful_broker <server.properties>
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from barnabas.broker.broker import Broker
from barnabas.cli.broker import open_registry, read_file
from barnabas.cli.stopping import Stopping
from barnabas.cluster import close_doors, real_world
from barnabas.config import BrokerConfig
from barnabas.world.ports import World
from tests.faults.chaos.forgetful_disk import ForgetfulDisk


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    config, _ = BrokerConfig.load(read_file(Path(sys.argv[1])))
    asyncio.run(run(config))


async def run(config: BrokerConfig) -> None:
    stopping = Stopping()
    registry = await open_registry(config)
    doors = real_world(registry, config)
    world = World(
        clock=doors.clock,
        network=doors.network,
        disk=ForgetfulDisk(Path(config.log_dirs[0])),
        registry=registry,
        random=doors.random,
    )
    broker = Broker(config, world)
    await stopping.unless_asked(broker.start())
    try:
        await stopping.asked.wait()
    finally:
        await broker.stop()
        close_doors(broker.world)
        await registry.close()


if __name__ == "__main__":
    main()
