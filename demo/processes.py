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
"""A short session: the cluster notices a killed broker soon."""


class Stage:
    """A ZooKeeper, and the brokers that were started so far."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.zookeeper = ZooKeeperServers(directory / "zookeeper")
        self.brokers: dict[int, MemberProcess] = {}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def enter(self, number: int) -> float:
        """Add a broker. Returns the seconds until it answers, when all brokers see each other."""
        broker = MemberProcess(self.directory, self.zookeeper.connect_string, number, SETTINGS)
        broker.command = [COMMAND, "broker"]
        self.brokers[number] = broker
        seconds = self.start(number)
        eventually(self.all_see_all, "all brokers see each other", SECONDS)
        return seconds

    def start(self, number: int) -> float:
        """Start a broker. Returns the seconds until it answers."""
        began = time.monotonic()
        self.brokers[number].start()
        return time.monotonic() - began

    def all_see_all(self) -> bool:
        views = [broker.view() for broker in self.brokers.values()]
        return all(
            view is not None and view.brokers.keys() == self.brokers.keys() for view in views
        )

    def controller(self) -> int | None:
        """The controller, if all running brokers agree on one that runs."""
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
