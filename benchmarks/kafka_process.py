"""Apache Kafka 3.9 as a BenchmarkBroker: the same loads and measurements apply to it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self
from uuid import UUID

from barnabas.client.offsets import latest_offsets
from barnabas.java.find import Java
from barnabas.model import TopicPartition
from benchmarks.broker import BenchmarkBroker
from interop.harness.jars import Jars, fetch, require_java
from interop.harness.kafka import KafkaBroker
from interop.harness.zookeeper import ZooKeeper

# JVM options of Kafka's kafka-run-class.sh, and of its kafka-server-start.sh.
RUN_SCRIPT = (
    *(
        "-server",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
    ),
    *("-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15"),
)
START_SCRIPT = ("-Xms1G", "-Xmx1G", *RUN_SCRIPT)


class KafkaProcess(BenchmarkBroker):
    """Kafka broker with its own chroot. The ZooKeeper already runs, and its cost is not counted."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        java: Java,
        jars: Jars,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(settings)
        self.kafka = KafkaBroker(
            1,
            self.directory / "kafka",
            java=java,
            jars=jars,
            zookeeper_connect=f"{zookeeper.address}/{self.directory.name}",
            settings=self.settings,
            options=START_SCRIPT,
        )

    @property
    def pid(self) -> int:
        return self.kafka.running.pid

    def start(self, *topics: str) -> Self:
        began = time.perf_counter()
        self.kafka.start()
        self.start_s = time.perf_counter() - began
        self.address = "127.0.0.1", self.kafka.port
        for topic in topics:
            name, partitions, _ = topic.split(":")
            self.create_topic(name, int(partitions))
        return self

    def create_topic(self, name: str, partitions: int) -> UUID:
        """Create a topic and wait for its leaders: Kafka responds before they are elected."""
        topic_id = super().create_topic(name, partitions)
        with self.admin() as admin:
            latest_offsets(
                admin.cluster, [TopicPartition(name, number) for number in range(partitions)]
            )
        return topic_id

    def kill(self) -> None:
        self.kafka.kill()

    def stop(self) -> None:
        self.kafka.stop()


class KafkaFactory:
    """Creates Kafka brokers from a running ZooKeeper, a Java and the jars."""

    def __init__(self, zookeeper: ZooKeeper, java: Java, jars: Jars) -> None:
        self.zookeeper = zookeeper
        self.java = java
        self.jars = jars

    def broker(self) -> KafkaProcess:
        return KafkaProcess(self.zookeeper, self.java, self.jars)


@contextmanager
def kafka_factory() -> Iterator[KafkaFactory]:
    java, jars = require_java(), fetch()
    with (
        TemporaryDirectory(prefix="barnabas-zookeeper-") as scratch,
        ZooKeeper(Path(scratch) / "zookeeper", java) as zookeeper,
    ):
        yield KafkaFactory(zookeeper, java, jars)
