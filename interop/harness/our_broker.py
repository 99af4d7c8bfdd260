"""Our brokers with a real ZooKeeper, with the settings and the interface (member.py) of the Kafka brokers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from interop.harness.kafka import SETTINGS
from support.command import COMMAND
from support.ports import free_port
from support.process import ChildProcess


class OurBroker:
    """`barnabas broker` in a child process. It keeps its port across restarts."""

    def __init__(
        self,
        broker_id: int,
        directory: Path,
        *,
        zookeeper_connect: str,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.directory = directory
        self.port = free_port()
        self.settings = {
            **SETTINGS,
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.log_dir),
            "zookeeper.connect": zookeeper_connect,
            # Kafka does not have this topic.
            "barnabas.history.topic.enable": "false",
            # Kafka supports the new consumer protocol only without ZooKeeper.
            "group.coordinator.rebalance.protocols": "classic",
            **(settings or {}),
        }
        self.process: ChildProcess | None = None

    @property
    def log_dir(self) -> Path:
        return self.directory / "logs"

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> ChildProcess:
        assert self.process is not None
        return self.process

    def launch(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{key}={text}\n" for key, text in self.settings.items()))
        self.process = ChildProcess(
            f"broker {self.broker_id} of ours",
            [*COMMAND, "broker", str(properties)],
            directory=self.directory,
            log=self.directory / "server.log",
            is_isolated=True,
        )

    def bound_port(self) -> int | None:
        return self.port

    def stop(self) -> int:
        process, self.process = self.running, None
        return process.stop_or_kill()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process = None
