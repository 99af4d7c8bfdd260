"""Apache Kafka 3.9 brokers in ZooKeeper mode, each in its own process."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from barnabas.java.find import Java
from barnabas.java.process import JavaProcess
from interop.harness import jvm
from interop.harness.jars import KAFKA_3_9, Jars
from interop.harness.member import start_together
from interop.harness.zookeeper import ZooKeeper

BOUND = re.compile(r"Awaiting socket connections on 127\.0\.0\.1:(\d+)\.")
SETTINGS = {
    # One replica is enough: a cluster lives only as long as its test.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    # By default, the cleaner allocates 128 MB of heap at startup.
    "log.cleaner.dedupe.buffer.size": "4194304",
    "controlled.shutdown.enable": "false",
}


class KafkaBroker:
    """One broker. Unless a port is given, the system chooses a new one at every start."""

    def __init__(
        self,
        broker_id: int,
        directory: Path,
        *,
        java: Java,
        jars: Jars,
        zookeeper_connect: str,
        settings: Mapping[str, str] | None = None,
        options: Sequence[str] = jvm.SMALL_SERVER,
        port: int = 0,
    ) -> None:
        self.broker_id = broker_id
        self.directory = directory
        self.java = java
        self.jars = jars
        self.options = options
        self.wanted_port = port
        self.port = port
        self.settings = {
            **SETTINGS,
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(self.log_dir),
            "zookeeper.connect": zookeeper_connect,
            **(settings or {}),
        }
        self.process: JavaProcess | None = None

    @property
    def log_dir(self) -> Path:
        return self.directory / "logs"

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> JavaProcess:
        assert self.process is not None
        return self.process

    def launch(self) -> None:
        """Start without waiting, so that several brokers start in parallel."""
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{key}={text}\n" for key, text in self.settings.items()))
        log = self.directory / "server.log"
        command = jvm.command(
            self.java,
            self.jars.class_path(KAFKA_3_9),
            "kafka.Kafka",
            str(properties),
            scratch=self.directory,
            options=self.options,
        )
        name = f"Kafka broker {self.broker_id}"
        self.process = JavaProcess(name, command, directory=self.directory, log=log)

    def bound_port(self) -> int | None:
        """The wanted port, or the port that the system chose. There may be other listeners with fixed ports."""
        ports = [int(found[1]) for found in BOUND.finditer(self.running.log())]
        fixed = [int(port) for port in re.findall(r":(\d+)", self.settings["listeners"])]
        if self.wanted_port:
            ports = [port for port in ports if port == self.wanted_port]
        elif 0 in fixed:
            ports = [port for port in ports if port not in fixed]
        return ports[0] if ports else None

    def start(self) -> Self:
        """Start a broker that is alone in its cluster. Afterwards it is ready, or it has been killed."""
        start_together([self])
        return self

    def stop(self) -> int:
        """Shut down cleanly, so that all data is on disk; returns the exit code."""
        process, self.process = self.running, None
        return process.stop()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process = None


class KafkaCluster:
    """`count` brokers below one znode. If one does not start, all are killed."""

    def __init__(
        self,
        directory: Path,
        *,
        java: Java,
        jars: Jars,
        zookeeper: ZooKeeper,
        count: int = 1,
        settings: Mapping[str, str] | None = None,
        options: Sequence[str] = jvm.SMALL_SERVER,
    ) -> None:
        self.brokers = [
            KafkaBroker(
                broker_id,
                directory / f"broker-{broker_id}",
                java=java,
                jars=jars,
                zookeeper_connect=f"{zookeeper.address}/{directory.name}",
                settings=settings,
                options=options,
            )
            for broker_id in range(1, count + 1)
        ]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def start(self) -> Self:
        start_together(self.brokers)
        return self

    def stop(self) -> None:
        for broker in self.brokers:
            broker.stop()

    def kill(self) -> None:
        for broker in self.brokers:
            broker.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
