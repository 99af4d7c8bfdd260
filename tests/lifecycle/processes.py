"""Three brokers in processes of their own around a ZooKeeper: the other half of clusters.py."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from barnabas.model import BrokerId
from barnabas.world.held_port import HeldPort
from barnabas.world.ports import Registry
from barnabas.world.registry.zookeeper import ZooKeeperRegistry
from tests.child_process import ENVIRONMENT
from tests.lifecycle.clusters import BROKERS, SETTINGS
from tests.lifecycle.trap import CrashPoint, Kind

HOST = "127.0.0.1"
ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
CONNECTION_TIMEOUT_MS = 20_000


class ZooKeeperBrokers:
    """`connect_string` with a chroot of its own: several clusters share one ZooKeeper."""

    registry_name = "zookeeper"
    session_timeout_ms = 1500

    def __init__(
        self, data: Path, connect_string: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self.data = data
        self.connect_string = connect_string
        data.mkdir(parents=True, exist_ok=True)
        self.held = {BrokerId(1 + number): HeldPort(HOST) for number in range(BROKERS)}
        for broker, held in self.held.items():
            written = {
                "broker.id": str(broker),
                "listeners": f"PLAINTEXT://{HOST}:{held.port}",
                "log.dirs": str(self.log_dir(broker)),
                "zookeeper.connect": connect_string,
                "zookeeper.session.timeout.ms": str(self.session_timeout_ms),
                **SETTINGS,
                **(settings or {}),
            }
            lines = "".join(f"{key}={value}\n" for key, value in written.items())
            self.properties(broker).write_text(lines)
        self.processes: dict[BrokerId, BrokerProcess] = {}

    def properties(self, broker: BrokerId) -> Path:
        return self.data / f"broker-{broker}.properties"

    def start(self) -> None:
        self.restart(self.held)

    def stop(self) -> None:
        self.kill(list(self.processes))
        for held in self.held.values():
            held.release()

    def ports(self) -> Mapping[int, BrokerId]:
        return {held.port: broker for broker, held in self.held.items()}

    def address(self, broker: BrokerId) -> tuple[str, int]:
        return HOST, self.held[broker].port

    def log_dir(self, broker: BrokerId) -> Path:
        return self.data / f"broker-{broker}"

    def observed(self) -> Registry:
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
        return [each for each in among if self.processes[each].running.poll() is not None]

    def wait_for_death(self, victims: Iterable[BrokerId]) -> None:
        """The next life of each is launched at once, and waits: Python needs a while to load a broker."""
        for victim in victims:
            self.processes.pop(victim).wait_for_death()
            self.launch(victim)

    def kill(self, victims: Iterable[BrokerId]) -> None:
        for victim in victims:
            process = self.processes.pop(victim)
            process.running.kill()
            process.wait_for_death()

    def restart(self, brokers: Iterable[BrokerId]) -> None:
        wanted = list(brokers)
        for broker in wanted:
            if broker not in self.processes:
                self.launch(broker)
        for broker in wanted:
            self.processes[broker].tell({"start": True})
        for broker in wanted:
            self.processes[broker].hear()
            self.processes[broker].has_started = True

    def launch(self, broker: BrokerId) -> None:
        self.processes[broker] = BrokerProcess(
            self.properties(broker), self.data / f"broker-{broker}"
        )

    def traces(self) -> list[Path]:
        return sorted(self.data.glob("*.trace"))

    def log(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.data.glob("*.log")))


class BrokerProcess:
    """One life of one broker; see crashing_broker.py for what it can be told."""

    def __init__(self, properties: Path, name: Path) -> None:
        command = [sys.executable, "-m", "tests.lifecycle.crashing_broker"]
        with name.with_suffix(".log").open("ab") as log:
            self.running = subprocess.Popen(
                [*command, str(properties), str(name.with_suffix(".trace"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=ENVIRONMENT
                | {"PYTHONPATH": os.pathsep.join((ENVIRONMENT["PYTHONPATH"], str(ROOT)))},
            )
        self.log_path = name.with_suffix(".log")
        self.has_started = False
        self.answers: queue.Queue[str] = queue.Queue()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    @property
    def pid(self) -> int:
        return self.running.pid

    def read(self) -> None:
        assert self.running.stdout is not None
        for line in self.running.stdout:
            self.answers.put(line)
        self.answers.put("")

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        self.tell(command)
        return self.hear()

    def tell(self, command: Mapping[str, Any]) -> None:
        assert self.running.stdin is not None
        self.running.stdin.write(json.dumps(command) + "\n")
        self.running.stdin.flush()

    def hear(self) -> dict[str, Any]:
        line = self.answers.get(timeout=DEADLINE_S)
        assert line, f"the broker ended; its last words:\n{self.log_path.read_text()[-3000:]}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def wait_for_death(self) -> None:
        self.running.wait(DEADLINE_S)
        self.reader.join(DEADLINE_S)
        assert self.running.stdin is not None
        assert self.running.stdout is not None
        with suppress(OSError):  # something told it may still be on its way
            self.running.stdin.close()
        self.running.stdout.close()
