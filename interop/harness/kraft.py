"""One Apache Kafka 3.9 broker without ZooKeeper. Kafka serves the new consumer protocol only in this mode."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from barnabas.java.find import Java
from interop.harness import jvm
from interop.harness.jars import KAFKA_3_9, Jars
from interop.harness.kafka import KafkaBroker
from support.ports import free_port
from support.process import die_with_parent

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
FORMAT_TIMEOUT_S = 120


class KRaftBroker(KafkaBroker):
    """A broker that is its own controller. It keeps its port across restarts."""

    def __init__(
        self, directory: Path, *, java: Java, jars: Jars, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(1, directory, java=java, jars=jars, zookeeper_connect="", port=free_port())
        del self.settings["zookeeper.connect"], self.settings["broker.id"]
        address = f"127.0.0.1:{free_port()}"
        self.settings |= {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://{address}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "group.coordinator.rebalance.protocols": "classic,consumer",
            "unstable.feature.versions.enable": "true",
            "unstable.api.versions.enable": "true",
            **(settings or {}),
        }

    def launch(self) -> None:
        if not self.log_dir.exists():
            self.format()
        super().launch()

    def format(self) -> None:
        """Write the cluster id to the empty log directory."""
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "format.properties"
        properties.write_text("".join(f"{key}={text}\n" for key, text in self.settings.items()))
        done = subprocess.run(
            jvm.command(
                self.java,
                self.jars.class_path(KAFKA_3_9),
                "kafka.tools.StorageTool",
                *("format", "--cluster-id", CLUSTER_ID, "--config", str(properties)),
                scratch=self.directory,
            ),
            capture_output=True,
            text=True,
            timeout=FORMAT_TIMEOUT_S,
            preexec_fn=die_with_parent,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def bound_port(self) -> int | None:
        return self.port
