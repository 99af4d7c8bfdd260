"""`barnabas broker` for chaos tests: with a disk that loses unsynced data and a clock that jumps.

python -m tests.faults.chaos.broker_main [--forgetful] [--clock-file FILE] <server.properties>

SIGUSR1 prints all stacks. The clock file holds the shift in milliseconds; it is read again while the broker runs.
"""

from __future__ import annotations

import argparse
import faulthandler
import signal
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from barnabas.cli import main as cli
from barnabas.cli.brokers import broker as command
from barnabas.cluster.real_world import real_world
from barnabas.config import BrokerConfig
from barnabas.world.ports import Registry, World
from tests.faults.chaos.forgetful_disk import ForgetfulDisk

READ_EVERY_S = 0.1


class ShiftedClock:
    """Wall-clock time plus the shift stored in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shift_ms = 0
        self.read_at = float("-inf")

    def now_ms(self) -> int:
        now = time.monotonic()
        if now - self.read_at >= READ_EVERY_S:
            self.read_at = now
            self.shift_ms = int(self.path.read_text() or 0)
        return time.time_ns() // 1_000_000 + self.shift_ms


def main() -> None:
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    parser = argparse.ArgumentParser()
    parser.add_argument("--forgetful", action="store_true")
    parser.add_argument("--clock-file", type=Path)
    parser.add_argument("config")
    arguments = parser.parse_args()

    def altered_world(registry: Registry, config: BrokerConfig, **options: Any) -> World:
        world = real_world(registry, config, **options)
        if arguments.forgetful:
            world = replace(world, disk=ForgetfulDisk(Path(config.log_dirs[0])))
        if arguments.clock_file is not None:
            world = replace(world, clock=ShiftedClock(arguments.clock_file))
        return world

    vars(command)["real_world"] = altered_world
    cli.main(["broker", arguments.config])


if __name__ == "__main__":
    main()
