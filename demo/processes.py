"""The stage: a ZooKeeper, and brokers that are processes of their own, started by the command and really killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from barnabas.client.cluster import Cluster
from barnabas.cluster.zookeeper_servers import ZooKeeperServers
from barnabas.errors import ApiError

COMMAND = str(Path(sys.executable).with_name("barnabas"))
DEADLINE_SECONDS = 60
SESSION_TIMEOUT_MS = 2000
"""How long a silent broker is believed to be alive: short, for who watches."""


class BrokerProcess:
    def __init__(self, number: int, directory: Path, zookeeper: str) -> None:
        self.number = number
        self.log_dir = directory / f"broker-{number}"
        self.address = f"127.0.0.1:{free_port()}"
        self.properties = directory / f"broker-{number}.properties"
        self.words = directory / f"broker-{number}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.properties.write_text(
            f"broker.id={number}\n"
            f"listeners=PLAINTEXT://{self.address}\n"
            f"log.dirs={self.log_dir}\n"
            f"zookeeper.connect={zookeeper}\n"
            f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}\n"
        )

    def start(self) -> float:
        """Seconds until it answers."""
        began = time.monotonic()
        with self.words.open("ab") as words:
            self.process = subprocess.Popen(
                [COMMAND, "broker", str(self.properties)], stdout=words, stderr=words
            )
        wait_until(self.answers, f"broker {self.number} answers")
        return time.monotonic() - began

    def answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            last_words = self.words.read_text(errors="replace")[-2000:]
            sys.exit(f"broker {self.number} ended by itself; its last words:\n{last_words}")
        return brokers_known_at(self.address) != ()

    def kill(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()


class Stage:
    """A ZooKeeper, and as many brokers as have entered."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.zookeeper = ZooKeeperServers(directory / "zookeeper")
        self.brokers: dict[int, BrokerProcess] = {}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def enter(self, number: int) -> float:
        broker = BrokerProcess(number, self.directory, self.zookeeper.connect_string)
        self.brokers[number] = broker
        seconds = broker.start()
        everybody = tuple(sorted(self.brokers))
        for other in self.brokers.values():
            wait_until(
                lambda address=other.address: brokers_known_at(address) == everybody,  # type: ignore[misc]
                f"broker {other.number} knows of {everybody}",
            )
        return seconds

    def controller(self) -> int | None:
        """As the brokers that live see it, if they agree on one that lives."""
        alive = [each for each in self.brokers.values() if each.process and not each.process.poll()]
        seen = {controller_known_at(broker.address) for broker in alive}
        found = seen.pop() if len(seen) == 1 else None
        return found if found in [broker.number for broker in alive] else None

    def wait_for_controller(self) -> int:
        wait_until(lambda: self.controller() is not None, "a controller is elected")
        found = self.controller()
        assert found is not None
        return found

    def close(self) -> None:
        for broker in reversed(self.brokers.values()):
            broker.stop()
        self.zookeeper.stop()


def brokers_known_at(address: str) -> tuple[int, ...]:
    try:
        with Cluster(address, timeout_s=2.0) as cluster:
            return tuple(sorted(cluster.refresh(None).brokers))
    except ApiError:
        return ()


def controller_known_at(address: str) -> int | None:
    try:
        with Cluster(address, timeout_s=2.0) as cluster:
            return cluster.refresh(None).controller
    except ApiError:
        return None


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            sys.exit(f"not within {DEADLINE_SECONDS} s: {what}")
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
