"""Stage for overlapping faults: brokers behind proxies, on small volumes, with jumping clocks and more load.

clients ───────────────► PLAINTEXT listener of each broker
brokers ──── proxy ────► INTERNAL listener of each broker
brokers ──── proxy ────► ZooKeeper
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import pytest

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import latest_offsets
from barnabas.client.view import ClusterView
from barnabas.cluster.zookeeper_servers import ZooKeeperServers
from barnabas.errors import ApiError
from barnabas.model import TopicPartition
from support.cluster import MemberProcess
from support.ports import free_port
from tests.faults.chaos import checks
from tests.faults.chaos.proxies import Proxies
from tests.faults.chaos.readers import (
    GROUP_SESSION_S,
    AiokafkaConsumer,
    BrokerReader,
    Consumer,
    GroupConsumer,
    Reader,
)
from tests.faults.chaos.side_topics import SETTINGS as SIDE_SETTINGS
from tests.faults.chaos.side_topics import SideWriter, TopicStorm
from tests.faults.chaos.stage import BROKER, PARTITIONS, SESSION_S, TOPIC, TOPIC_SETTINGS, Stage
from tests.faults.chaos.worker import Worker
from tests.faults.volumes import small_volume

VOLUME_SIZE = "64m"
ZOOKEEPER_ID = 0
"""The destination of a link from a broker to ZooKeeper."""
NODE = 1
IN_SYNC_S = 60.0
"""From the end of all faults until every partition has a leader and all replicas are in sync."""
PROGRESS_S = SESSION_S + 5.0
"""From then until every writer and every reader has made progress, on a machine that is not busy."""
SETTINGS = {
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
    # Only these timeouts detect a link that drops bytes.
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "3000",
    "controller.socket.timeout.ms": "3000",
    "request.timeout.ms": "5000",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}


class StormStage(Stage):
    may_give_up = True
    # Clocks jump, and retention must not delete anything because of that.
    topic_settings: Mapping[str, str] = MappingProxyType({**TOPIC_SETTINGS, "retention.ms": "-1"})

    def __init__(self, data: Path, seed: int, *, delivery_s: float) -> None:
        self.seed = seed
        self.delivery_s = delivery_s
        self.consumer_log = data / "consumer.log"
        self.resources = ExitStack()
        self.volumes: dict[int, Path] = {}
        self.no_volumes = ""
        """Why there are none."""
        self.zookeeper = ZooKeeperServers(data / "zookeeper")
        self.zookeeper.start()
        self.resources.callback(self.zookeeper.stop)
        super().__init__(
            data,
            self.zookeeper.connect_string,
            writers=("rdkafka-in-order", "barnabas"),
            settings=SETTINGS,
        )
        self.proxies = Proxies(self.pids)
        self.resources.callback(self.proxies.end)
        servers = self.cluster.bootstrap_servers
        self.storm = TopicStorm(servers, seed)
        self.side_writer = SideWriter(servers, delivery_s)

    def __enter__(self) -> Self:
        try:
            self.mount_volumes()
            for broker in self.cluster.brokers.values():
                self.wire(broker)
            return super().__enter__()
        except BaseException:
            self.resources.close()
            raise

    def pids(self) -> dict[int, int]:
        return {
            broker.process.pid: broker.id
            for broker in self.cluster.brokers.values()
            if broker.process is not None
        }

    def mount_volumes(self) -> None:
        try:
            for number in self.cluster.brokers:
                volume = small_volume(self.data / f"volume-{number}", VOLUME_SIZE)
                self.volumes[number] = self.resources.enter_context(volume)
        except pytest.skip.Exception as error:
            self.no_volumes = str(error)

    def wire(self, broker: MemberProcess) -> None:
        internal = free_port()
        proxy = self.proxies.between(broker.id, internal)
        zookeeper = self.proxies.in_front_of((broker.id, ZOOKEEPER_ID), self.zookeeper.ports[0])
        direct = f"PLAINTEXT://{broker.bootstrap_servers}"
        broker.configure(
            {
                "listeners": f"{direct},INTERNAL://127.0.0.1:{internal}",
                "advertised.listeners": f"{direct},INTERNAL://127.0.0.1:{proxy}",
                "zookeeper.connect": f"127.0.0.1:{zookeeper}",
            }
        )
        if broker.id in self.volumes:
            broker.configure({"log.dirs": str(self.volumes[broker.id] / "logs")})
        self.set_clock(broker.id, 0.0)
        broker.command = [*BROKER, "--clock-file", str(self.clock_file(broker.id))]

    def clock_file(self, broker: int) -> Path:
        return self.data / f"clock-{broker}"

    def set_clock(self, broker: int, hours: float) -> None:
        new = self.data / f"clock-{broker}.new"
        new.write_text(str(int(hours * 3_600_000)))
        new.replace(self.clock_file(broker))

    # ---- load

    def create_topic(self) -> None:
        with Cluster(self.cluster.bootstrap_servers) as client:
            wanted = [
                NewTopic(name=name, partitions=1, replication_factor=3, configs=configs)
                for name, configs in SIDE_SETTINGS.items()
            ]
            outcomes = Admin(client).create_topics(wanted)
        assert not any(outcome.error for outcome in outcomes), outcomes
        super().create_topic()

    def more_readers(self) -> list[Reader]:
        servers = self.cluster.bootstrap_servers
        log = self.data / "patient-consumer.log"
        return [
            Consumer(servers, TOPIC, PARTITIONS, self.ledger, log, is_patient=True),
            GroupConsumer(servers, TOPIC, PARTITIONS, self.ledger),
            AiokafkaConsumer(servers, TOPIC, PARTITIONS, self.ledger),
        ]

    @property
    def workers(self) -> list[Worker]:
        return [*super().workers, self.storm, self.side_writer]

    def check_health(self) -> None:
        super().check_health()
        assert not self.side_writer.failed, self.side_writer.failed[:3]

    # ---- the end

    def views(self) -> list[ClusterView] | None:
        """The cluster as each broker reports it; None if one does not answer."""
        views = []
        for broker in self.cluster.brokers.values():
            assert broker.is_running, f"{broker.id} exited; last log lines:\n{broker.log()[-2000:]}"
            try:
                with Cluster(broker.bootstrap_servers, timeout_s=checks.ANSWER_S) as client:
                    views.append(client.refresh(None))
            except ApiError:
                return None
        return views

    def health_problems(self) -> list[str]:
        """Reasons why the cluster is not healthy: brokers or replicas that some broker misses."""
        views = self.views()
        if views is None:
            return ["a broker does not answer"]
        missing = []
        for number, view in zip(self.cluster.brokers, views, strict=True):
            absent = self.cluster.brokers.keys() - view.brokers.keys()
            if absent or view.controller not in view.brokers:
                missing.append(
                    f"broker {number} misses brokers {sorted(absent)}, controller {view.controller}"
                )
            missing += [
                f"broker {number}: {topic.name}-{each.partition} {each}"
                for topic in view.topics.values()
                for each in topic.partitions
                if each.is_offline or each.is_under_replicated
            ]
            missing += [
                f"broker {number}: no topic {each}" for each in self.own - view.topics.keys()
            ]
        return missing

    @property
    def own(self) -> set[str]:
        return {TOPIC, *SIDE_SETTINGS}

    def wait_until_healthy(self, seconds: float = IN_SYNC_S) -> None:
        missing: list[str] = []

        def is_healthy() -> bool:
            missing[:] = self.health_problems()
            return not missing

        try:
            self.wait(is_healthy, "all replicas are in sync", seconds * patience())
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *missing[:10]])) from error

    def settle(self) -> None:
        """After the faults: check that everyone makes progress in time, then compare everything."""
        self.storm.stopping.set()
        self.wait_until_healthy()
        self.wait_for_progress()
        self.side_writer.stopping.set()
        self.storm.join(60.0)
        self.side_writer.join(90.0)
        assert not self.storm.is_alive()
        assert not self.side_writer.is_alive()
        super().settle()
        self.compare_side_topics()
        self.check_brokers()

    def wait_for_progress(self) -> None:
        began = time.monotonic()
        ends = self.high_watermarks()
        group_s = GROUP_SESSION_S + 5.0
        limit = {
            reader: group_s if reader is self.group else PROGRESS_S for reader in self.following
        }
        waiting = dict(limit)
        while waiting:
            self.check_health()
            for reader in list(waiting):
                if all(reader.positions[index] >= end for index, end in ends.items()):
                    print(f"{reader.name} resumed after {time.monotonic() - began:.1f} s")
                    del waiting[reader]
                    continue
                late = time.monotonic() - began > limit[reader] * patience()
                where = f"{reader.name} is at {reader.positions}, the ends are {ends}"
                assert not late, f"{where}\n{reader.trace()}"
            time.sleep(0.05)
        since, number = time.monotonic(), self.side_writer.number
        self.wait(
            lambda: (
                self.side_writer.has_written(number)
                and all(
                    self.ledger.seconds_until_writing_again(writer.kind, since) is not None
                    for writer in self.writers
                )
            ),
            "all writers resume",
            PROGRESS_S * patience(),
        )

    @property
    def following(self) -> list[Reader]:
        """The readers that follow the leaders."""
        return [each for each in self.readers if not isinstance(each, BrokerReader)]

    @property
    def group(self) -> Reader:
        return next(each for each in self.readers if isinstance(each, GroupConsumer))

    def compare_side_topics(self) -> None:
        faults = []
        for topic in SIDE_SETTINGS:
            partition = TopicPartition(topic, 0)
            with Cluster(self.cluster.bootstrap_servers) as client:
                end = latest_offsets(client, [partition])[partition]
            directories = {
                number: broker.log_dir / f"{topic}-0"
                for number, broker in self.cluster.brokers.items()
            }
            faults += self.side_writer.faults(topic, directories, end)
            count = len(self.side_writer.offsets[topic])
            print(f"{topic}: {count} records acknowledged")
        assert not faults, "\n".join(faults)

    def check_brokers(self) -> None:
        brokers = list(self.cluster.brokers.values())
        silent = checks.silent_brokers(brokers)
        assert not silent, f"brokers {silent} do not answer Metadata within {checks.ANSWER_S} s"
        busy = checks.busy_brokers(brokers)
        assert not busy, f"brokers {busy} are busy although no client sends requests"
        traces = [
            f"broker {broker.id}: {trace}"
            for broker in brokers
            for trace in checks.unexplained(checks.tracebacks(broker.log()))
        ]
        assert not traces, f"{len(traces)} tracebacks:\n" + "\n\n".join(traces[:3])

    def save_data(self) -> None:
        """Copy the volumes for debugging; they are unmounted after the run."""
        for number, volume in self.volumes.items():
            with suppress(OSError, shutil.Error):
                shutil.copytree(volume / "logs", self.data / f"volume-{number}-logs")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self.resources:
            for worker in (self.storm, self.side_writer):
                worker.stopping.set()
            super().__exit__(kind, error, trace)


def patience() -> float:
    """The factor by which deadlines grow on a machine with more work than cores."""
    return min(max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), 5.0)
