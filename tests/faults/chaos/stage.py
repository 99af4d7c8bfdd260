"""Test stage: three broker processes with a ZooKeeper, two writers, four readers, and an observer of the invariants.

with Stage(tmp_path, chroot) as stage:
    ...                     inject faults into brokers
    stage.settle()          check that all records are stored on all replicas
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import latest_offsets
from barnabas.client.view import PartitionView
from barnabas.errors import ApiError
from barnabas.model import TopicPartition
from barnabas.world.registry.zookeeper import ZooKeeperRegistry
from support.cluster import ClusterProcesses
from support.waiting import eventually
from tests.faults.chaos import replicas
from tests.faults.chaos.ledger import Ledger
from tests.faults.chaos.readers import BrokerReader, Consumer, Reader
from tests.faults.chaos.worker import Worker
from tests.faults.chaos.writer_process import DELIVERY_S
from tests.faults.chaos.writers import Writer
from tests.lifecycle.invariants import Invariants
from tests.lifecycle.observer import Observer

TOPIC, PARTITIONS = "letters", 4
SESSION_S = 2.0
DEADLINE_S = 60.0
POLL_INTERVAL_S = 0.05
SETTINGS = {
    "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
    # A broker may be paused just when it connects.
    "zookeeper.connection.timeout.ms": "20000",
    # Preferred leader elections run now and then, independent of faults.
    "leader.imbalance.check.interval.seconds": "7",
    "leader.imbalance.per.broker.percentage": "0",
    "controlled.shutdown.retry.backoff.ms": "500",
    "barnabas.history.topic.enable": "false",
    "offsets.topic.num.partitions": "4",
}
TOPIC_SETTINGS = {"min.insync.replicas": "2", "segment.bytes": "16384"}
WRITERS = ("rdkafka", "kafka-python")
BROKER = [sys.executable, "-m", "tests.faults.chaos.broker_main"]


class Stage:
    topic_settings: Mapping[str, str] = TOPIC_SETTINGS
    delivery_s = DELIVERY_S
    consumer_log: Path | None = None
    may_give_up = False
    """Whether our own producer may give up on a record. It does after a request timeout without a leader."""

    def __init__(
        self,
        data: Path,
        connect_string: str,
        *,
        forgetful: bool = False,
        writers: Sequence[str] = WRITERS,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Brokers in `forgetful` have disks that lose unsynced data; see forgetful_disk.py."""
        self.data = data
        self.kinds = writers
        self.cluster = ClusterProcesses(
            data, connect_string, brokers=3, settings={**SETTINGS, **(settings or {})}
        )
        if forgetful:
            for broker in self.cluster.brokers.values():
                broker.command = [*BROKER, "--forgetful"]
        self.ledger = Ledger()
        self.invariants = Invariants()
        self.observer = Observer(
            ZooKeeperRegistry(connect_string, connection_timeout_ms=20_000, in_flight_max=50),
            self.invariants,
        )
        self.writers: list[Writer] = []
        self.consumer: Consumer
        self.readers: list[Reader] = []

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        try:
            self.observer.begin()
            self.create_topic()
            self.begin_work()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for writer in self.writers:
            writer.end()
        for reader in self.readers:
            reader.stopping.set()
        for reader in self.readers:
            reader.join(DEADLINE_S)
        self.cluster.end()
        self.observer.end()

    def create_topic(self) -> None:
        self.wait(self.all_brokers_are_registered, "all brokers are registered")
        wanted = NewTopic(
            name=TOPIC, partitions=PARTITIONS, replication_factor=3, configs=self.topic_settings
        )
        with Cluster(self.cluster.bootstrap_servers) as client:
            (outcome,) = Admin(client).create_topics([wanted])
        assert outcome.error is None, outcome.error
        self.wait(self.is_healthy, "all brokers know the topic")

    def begin_work(self) -> None:
        servers = self.cluster.bootstrap_servers
        self.writers = [
            Writer(
                kind,
                servers,
                TOPIC,
                PARTITIONS,
                self.ledger,
                self.data / f"{kind}.log",
                delivery_s=self.delivery_s,
            )
            for kind in self.kinds
        ]
        self.consumer = Consumer(servers, TOPIC, PARTITIONS, self.ledger, self.consumer_log)
        self.readers = [
            self.consumer,
            *self.more_readers(),
            *(
                BrokerReader(number, broker.bootstrap_servers, TOPIC, PARTITIONS, self.ledger)
                for number, broker in self.cluster.brokers.items()
            ),
        ]
        for each in self.workers:
            each.start()
        self.wait_for_writers(time.monotonic())

    def more_readers(self) -> list[Reader]:
        return []

    @property
    def workers(self) -> list[Worker]:
        return [*self.writers, *self.readers]

    # ---- observing

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = DEADLINE_S) -> None:
        """Like `eventually`, but polls slowly to leave the CPU to the workers. A failed run ends at once."""

        def check() -> bool:
            self.check_health()
            if condition():
                return True
            time.sleep(POLL_INTERVAL_S)
            return False

        eventually(check, what, seconds)

    def check_health(self) -> None:
        for each in self.workers:
            if each.error is not None:
                raise AssertionError(f"{each.name} ended") from each.error
        assert not self.ledger.failed, self.ledger.failed[:3]
        assert self.may_give_up or not self.ledger.unknown, sorted(self.ledger.unknown)[:3]
        assert not self.ledger.contradictions, self.ledger.contradictions[:3]
        assert not self.invariants.broken, self.invariants.broken[:3]

    def partitions(self) -> tuple[PartitionView, ...] | None:
        """The partitions as any available broker reports them."""
        servers = [each.bootstrap_servers for each in self.cluster.brokers.values()]
        for address in servers:
            try:
                with Cluster(address, timeout_s=1.0) as client:
                    return client.refresh([TOPIC]).topic(TOPIC).partitions
            except ApiError:
                continue
        return None

    def all_brokers_are_registered(self) -> bool:
        views = [broker.view() for broker in self.cluster.brokers.values()]
        return all(view is not None and len(view.brokers) == len(views) for view in views)

    def is_healthy(self) -> bool:
        """Whether every broker sees all brokers registered and all replicas in sync."""
        for broker in self.cluster.brokers.values():
            assert broker.is_running, f"{broker.id} exited; last log lines:\n{broker.log()[-2000:]}"
            try:
                with Cluster(broker.bootstrap_servers, timeout_s=1.0) as client:
                    view = client.refresh([TOPIC])
                    partitions = view.topic(TOPIC).partitions
            except ApiError:
                return False
            if len(view.brokers) < len(self.cluster.brokers):
                return False
            if any(each.is_offline or each.is_under_replicated for each in partitions):
                return False
        return True

    def wait_until_healthy(self) -> None:
        self.wait(self.is_healthy, "all replicas are in sync again")

    def wait_for_writers(self, since: float) -> dict[str, float]:
        """Seconds from `since` until each writer got a record acknowledged in every partition."""
        self.wait(
            lambda: all(
                self.ledger.seconds_until_writing_again(writer.kind, since) is not None
                for writer in self.writers
            ),
            "the writers resume",
        )
        return {
            writer.kind: self.ledger.seconds_until_writing_again(writer.kind, since) or 0.0
            for writer in self.writers
        }

    # ---- the end

    def settle(self) -> None:
        """Let writers finish and readers reach the end, then compare everything."""
        self.wait_until_healthy()
        for writer in self.writers:
            writer.finish()
        self.check_health()
        self.wait_until_healthy()
        ends = self.high_watermarks()
        self.wait(
            lambda: all(self.consumer.positions[index] >= end for index, end in ends.items()),
            f"the consumer is at the end: {ends}",
        )
        for reader in self.readers:
            reader.stopping.set()
        for reader in self.readers:
            reader.join(DEADLINE_S)
        self.check_health()
        faults = []
        logs = {}
        for index, end in ends.items():
            copies = {
                number: replicas.read_copy(broker.log_dir / f"{TOPIC}-{index}", end)
                for number, broker in self.cluster.brokers.items()
            }
            faults += [f"{TOPIC}-{index}: {each}" for each in replicas.differences(copies)]
            logs[index] = copies[1].values
        faults += self.ledger.faults(logs)
        assert not faults, "\n".join(faults)
        print(
            f"{self.ledger.acknowledged} records acknowledged, {sum(self.ledger.reads.values())} "
            f"read, {sum(ends.values())} compared on {len(self.cluster.brokers)} disks"
        )

    def high_watermarks(self) -> dict[int, int]:
        partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        with Cluster(self.cluster.bootstrap_servers) as client:
            found = latest_offsets(client, partitions)
        return {each.partition: end for each, end in found.items()}
