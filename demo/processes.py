"""A ZooKeeper and brokers in child processes, for the demo."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from barnabas.cluster.zookeeper_servers import ZooKeeperServers
from support.cluster import MemberProcess
from support.waiting import eventually

COMMAND = str(Path(sys.executable).with_name("barnabas"))
SECONDS = 60.0
SETTINGS = {"zookeeper.session.timeout.ms": "2000"}
"""With a short session timeout, the cluster detects a killed broker sooner."""


class Stage:
    """A ZooKeeper, and the brokers added so far."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.zookeeper = ZooKeeperServers(directory / "zookeeper")
        self.brokers: dict[int, MemberProcess] = {}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def add_broker(self, number: int) -> float:
        """Start a new broker and wait until all brokers know each other. Returns the seconds until it answers."""
        broker = MemberProcess(self.directory, self.zookeeper.connect_string, number, SETTINGS)
        broker.command = [COMMAND, "broker"]
        self.brokers[number] = broker
        seconds = self.start(number)
        eventually(self.is_complete, "all brokers know each other", SECONDS)
        return seconds

    def start(self, number: int) -> float:
        """Start a broker. Returns the seconds until it answers."""
        began = time.monotonic()
        self.brokers[number].start()
        return time.monotonic() - began

    def is_complete(self) -> bool:
        """Return whether the metadata of every broker lists all brokers."""
        views = [broker.view() for broker in self.brokers.values()]
        return all(
            view is not None and view.brokers.keys() == self.brokers.keys() for view in views
        )

    def controller(self) -> int | None:
        """Return the controller, if all running brokers name the same running broker."""
        running = {number: one for number, one in self.brokers.items() if one.is_running}
        views = [broker.view() for broker in running.values()]
        seen = {None if view is None else view.controller for view in views}
        found = seen.pop() if len(seen) == 1 else None
        return found if found in running else None

    def wait_for_controller(self, *, other_than: int | None = None) -> int:
        eventually(
            lambda: self.controller() not in (None, other_than), "a controller is elected", SECONDS
        )
        found = self.controller()
        assert found is not None
        return found

    def close(self) -> None:
        for broker in reversed(self.brokers.values()):
            if broker.is_running:
                broker.running.stop_or_kill()
        self.zookeeper.stop()
