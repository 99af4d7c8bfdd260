"""Three brokers in forked processes with a ZooKeeper: the process-based half of clusters.py.

A test starts hundreds of brokers, and Python needs a third of a second to import one. So one process imports it, and
each broker is a fork of that process.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from barnabas.model import BrokerId
from barnabas.world.network import HeldPort
from barnabas.world.ports import Registry
from barnabas.world.registry.zookeeper import ZooKeeperRegistry
from tests.lifecycle import crashing_broker
from tests.lifecycle.client import brokers_known_to, eventually
from tests.lifecycle.clusters import BROKERS, SETTINGS
from tests.lifecycle.trap import CrashPoint, Kind

LAZY_MODULES = ("encodings.idna", "barnabas.replication.fetcher")
"""Modules that a broker imports after its start."""
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["pytest", crashing_broker.__name__, *LAZY_MODULES])
HOST = "127.0.0.1"
DEADLINE_S = 60.0
CONNECTION_TIMEOUT_MS = 20_000
KILLED_SESSION_S = 0.25
"""As long as with the embedded registry: other brokers still send requests to the killed one."""


class ZooKeeperBrokers:
    """Broker processes. `connect_string` has its own chroot: several clusters share one ZooKeeper."""

    registry_name = "zookeeper"

    def __init__(
        self,
        data: Path,
        connect_string: str,
        settings: Mapping[str, str] | None = None,
        *,
        session_timeout_ms: int,
        ends_sessions: bool = False,
    ) -> None:
        """With `ends_sessions`, the session of a killed broker ends after KILLED_SESSION_S, not after its timeout."""
        self.data = data
        self.ends_sessions = ends_sessions
        self.session_ends: list[threading.Timer] = []
        self.connect_string = connect_string
        data.mkdir(parents=True, exist_ok=True)
        self.held = {BrokerId(1 + number): HeldPort(HOST) for number in range(BROKERS)}
        for broker, held in self.held.items():
            written = {
                "broker.id": str(broker),
                "listeners": f"PLAINTEXT://{HOST}:{held.port}",
                "log.dirs": str(self.log_dir(broker)),
                "zookeeper.connect": connect_string,
                "zookeeper.session.timeout.ms": str(session_timeout_ms),
                **SETTINGS,
                **(settings or {}),
            }
            lines = "".join(f"{key}={value}\n" for key, value in written.items())
            self.properties(broker).write_text(lines)
        self.processes: dict[BrokerId, ForkedBroker] = {}

    def properties(self, broker: BrokerId) -> Path:
        return self.data / f"broker-{broker}.properties"

    def start(self) -> None:
        self.restart(self.held)

    def stop(self) -> None:
        self.ends_sessions = False
        self.kill(list(self.processes))
        for timer in self.session_ends:
            timer.join()
        for held in self.held.values():
            held.release()

    def ports(self) -> Mapping[int, BrokerId]:
        return {held.port: broker for broker, held in self.held.items()}

    def address(self, broker: BrokerId) -> tuple[str, int]:
        return HOST, self.held[broker].port

    def log_dir(self, broker: BrokerId) -> Path:
        return self.data / f"broker-{broker}"

    def observer_registry(self) -> Registry:
        return ZooKeeperRegistry(
            self.connect_string, connection_timeout_ms=CONNECTION_TIMEOUT_MS, in_flight_max=50
        )

    def alive(self) -> set[BrokerId]:
        return {broker for broker, process in self.processes.items() if process.has_started}

    def arm(
        self,
        broker: BrokerId,
        point: CrashPoint | None,
        victims: Iterable[BrokerId],
        *,
        from_election: bool = False,
    ) -> None:
        self.processes[broker].ask(
            {
                "arm": None if point is None else [point.when, point.kind, point.number],
                "kill": [self.processes[victim].pid for victim in victims],
                "from_election": from_election,
            }
        )

    def labels(self, broker: BrokerId) -> list[tuple[Kind, str]]:
        answer = self.processes[broker].ask({"labels": True})
        return [(Kind(kind), label) for kind, label in answer["labels"]]

    def dead(self, among: Iterable[BrokerId]) -> list[BrokerId]:
        return [each for each in among if not self.processes[each].running.is_alive()]

    def wait_for_death(self, victims: Iterable[BrokerId]) -> None:
        """Wait, and launch the next process of each victim at once; it waits for its start command."""
        for victim in victims:
            process = self.processes.pop(victim)
            process.wait_for_death()
            self.end_session(process)
            self.launch(victim)

    def kill(self, victims: Iterable[BrokerId]) -> None:
        for victim in victims:
            process = self.processes.pop(victim)
            process.running.kill()
            process.wait_for_death()
            self.end_session(process)

    def end_session(self, process: ForkedBroker) -> None:
        """Let the session of a killed broker end soon. A session that it opened after its start times out."""
        if not self.ends_sessions or process.session is None:
            return
        servers = self.connect_string.partition("/")[0]
        timer = threading.Timer(KILLED_SESSION_S, close_session, (servers, process.session))
        self.session_ends.append(timer)
        timer.start()

    def shut_down(self, brokers: Iterable[BrokerId]) -> None:
        for broker in brokers:
            process = self.processes.pop(broker)
            process.ask({"stop": True})
            process.wait_for_death()

    def restart(self, brokers: Iterable[BrokerId]) -> None:
        """Returns when all running brokers know each other: before that, the controller rejects replica placements."""
        wanted = list(brokers)
        for broker in wanted:
            if broker not in self.processes:
                self.launch(broker)
        for broker in wanted:
            self.processes[broker].send({"start": True})
        for broker in wanted:
            self.processes[broker].session = self.processes[broker].receive()["started"]
        eventually(self.know_each_other, lambda: f"all of {self.alive()} are known", DEADLINE_S)

    def know_each_other(self) -> bool:
        alive = self.alive()
        return all(brokers_known_to(self.address(each)) >= alive for each in alive)

    def launch(self, broker: BrokerId) -> None:
        self.processes[broker] = ForkedBroker(
            self.properties(broker), self.data / f"broker-{broker}"
        )

    def traces(self) -> list[Path]:
        return sorted(self.data.glob("*.trace"))

    def log(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.data.glob("*.log")))


class ForkedBroker:
    """One run of one broker; crashing_broker.py has the commands it accepts."""

    def __init__(self, properties: Path, name: Path) -> None:
        self.log_path = name.with_suffix(".log")
        self.session: tuple[int, bytes] | None = None
        """The id and the password of its ZooKeeper session, after its start."""
        self.line, other_end = FORKS.Pipe()
        with other_end:
            self.running = FORKS.Process(
                target=crashing_broker.main,
                args=(properties, name.with_suffix(".trace"), self.log_path, other_end),
                daemon=True,
            )
            self.running.start()

    @property
    def has_started(self) -> bool:
        return self.session is not None

    @property
    def pid(self) -> int:
        assert self.running.pid is not None
        return self.running.pid

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        self.send(command)
        return self.receive()

    def send(self, command: Mapping[str, Any]) -> None:
        self.line.send(command)

    def receive(self) -> dict[str, Any]:
        with suppress(EOFError, ConnectionError):
            assert self.line.poll(DEADLINE_S), f"broker {self.pid} does not answer"
            answer: dict[str, Any] = self.line.recv()
            return answer
        raise AssertionError(
            f"the broker exited; last log lines:\n{self.log_path.read_text()[-3000:]}"
        )

    def wait_for_death(self) -> None:
        self.running.join(DEADLINE_S)
        assert not self.running.is_alive(), f"broker {self.pid} does not exit"
        self.line.close()


def close_session(servers: str, session: tuple[int, bytes]) -> None:
    """Close the session of another client: connect to it with its id and password."""
    client = KazooClient(hosts=servers, client_id=session)
    client.start()
    client.stop()
    client.close()
