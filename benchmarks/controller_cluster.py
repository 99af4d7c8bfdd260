"""Three brokers of one kind with a ZooKeeper: operations on them, and the checks that an operation is complete.

A topic is created when every broker reports its leaders. A failover is complete when every broker reports the new
controller. Both are read from the brokers' metadata, a part of the partitions per request. A partition that a broker
has reported is not requested again, so that polling does not slow down the measured operation.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from barnabas.client.blocking import BlockingConnection
from barnabas.client.core import raise_if
from barnabas.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from benchmarks.broker import process_cpu_s
from benchmarks.kafka_process import START_SCRIPT
from interop.harness.jars import fetch, require_java
from interop.harness.kafka import KafkaBroker
from interop.harness.member import Member, start_together
from interop.harness.our_broker import OurBroker
from interop.harness.znodes import Znodes
from interop.harness.zookeeper import ZooKeeper
from support.process import require_running

IDS = (1, 2, 3)
REPLICAS = 3
SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "auto.create.topics.enable": "false",
    # Only the measured operations may move leaders.
    "auto.leader.rebalance.enable": "false",
    # The interop tests disable it.
    "controlled.shutdown.enable": "true",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # Kafka preallocates index files: two for each of 30,000 logs.
    "log.index.size.max.bytes": "65536",
}
# With enough memory for the znodes of 10,000 partitions of both clusters.
ZOOKEEPER_OPTIONS = ("-XX:+UseSerialGC", "-Xshare:auto", "-Xms256m", "-Xmx1g")
PARTITIONS_PER_REQUEST = 250
POLL_S = 0.05
POLL_REGISTRY_S = 0.003
TIMEOUT_S = 300.0

IsExpected = Callable[[MetadataResponsePartition], bool]


class Trio:
    """Three brokers, which run from `start` to `kill`. `topics` maps existing topics to their numbers of partitions."""

    def __init__(self, zookeeper: ZooKeeper, chroot: str, brokers: Sequence[Member]) -> None:
        self.zookeeper = zookeeper
        self.chroot = chroot
        self.brokers = {broker.broker_id: broker for broker in brokers}
        self.alive: set[int] = set()
        self.topics: dict[str, int] = {}

    def start(self) -> float:
        """Start all brokers. Returns the seconds until every broker knows all brokers."""
        began = time.perf_counter()
        start_together(list(self.brokers.values()))
        self.alive = set(self.brokers)
        return time.perf_counter() - began

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        self.alive.clear()

    @property
    def client_settings(self) -> dict[str, object]:
        return {}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers.values())

    def cpu_s(self) -> float:
        """Return the user and system time of all three brokers so far."""
        return sum(process_cpu_s(broker.running.pid) for broker in self.brokers.values())

    def resident_mb(self, broker: int) -> float:
        return float(psutil.Process(self.brokers[broker].running.pid).memory_info().rss / 1e6)

    # ---- topics

    def create(
        self,
        topics: Mapping[str, int],
        replicas: int = REPLICAS,
        configs: Mapping[str, str] | None = None,
    ) -> float:
        """Create topics. Returns the seconds until every broker reports the leaders of all their partitions."""
        settings = tuple(CreatableTopicConfig(*each) for each in (configs or {}).items())
        wanted = tuple(
            CreatableTopic(name, count, replicas, configs=settings)
            for name, count in topics.items()
        )
        request = CreateTopicsRequest(topics=wanted, timeout_ms=int(TIMEOUT_S * 1000))
        began = time.perf_counter()
        with self.connection(self.controller()) as connection:
            response = connection.exchange(request, CreateTopicsResponse, timeout_s=TIMEOUT_S)
        for topic in response.topics:
            raise_if(topic.error_code, f"{topic.name}: {topic.error_message}")
        self.topics |= topics
        for broker in sorted(self.alive):
            self.wait_for(broker, topics, lambda one: one.leader_id in self.alive)
        return time.perf_counter() - began

    def delete(self, topics: Sequence[str]) -> float:
        """Delete topics. Returns the seconds until no znode is left, and on disk only directories to be removed."""
        began = time.perf_counter()
        names = tuple(DeleteTopicState(name) for name in topics)
        request = DeleteTopicsRequest(topics=names, timeout_ms=int(TIMEOUT_S * 1000))
        with self.connection(self.controller()) as connection:
            response = connection.exchange(request, DeleteTopicsResponse, timeout_s=TIMEOUT_S)
        for topic in response.responses:
            raise_if(topic.error_code, f"{topic.name}: {topic.error_message}")
        self.topics = {name: self.topics[name] for name in self.topics.keys() - set(topics)}
        deleted = set(topics)
        with self.znodes() as znodes:
            for path in ("/admin/delete_topics", "/brokers/topics", "/config/topics"):
                self.wait(
                    lambda path=path: deleted.isdisjoint(znodes.children(self.chroot + path)),  # type: ignore[misc]
                    f"{len(topics)} topics removed from {path}",
                )
        self.wait(
            lambda: deleted.isdisjoint(self.topics_on_disk()),
            f"{len(topics)} topics removed from disks",
        )
        return time.perf_counter() - began

    def reassign(self, topic: str, assignment: Sequence[tuple[int, ...]]) -> float:
        """Reassign all partitions. Returns the seconds until the topic znode and every broker show the new replicas."""
        partitions = tuple(ReassignablePartition(*each) for each in enumerate(assignment))
        request = AlterPartitionReassignmentsRequest(topics=(ReassignableTopic(topic, partitions),))
        began = time.perf_counter()
        with self.connection(self.controller()) as connection:
            response = connection.exchange(
                request, AlterPartitionReassignmentsResponse, timeout_s=TIMEOUT_S
            )
        raise_if(response.error_code, response.error_message)
        for result in response.responses[0].partitions:
            raise_if(result.error_code, f"{topic}-{result.partition_index}")
        with self.znodes() as znodes:
            self.wait(
                lambda: not read_moving(znodes, f"{self.chroot}/brokers/topics/{topic}"),
                f"{topic} reassigned",
            )
        for broker in sorted(self.alive):
            self.wait_for(
                broker,
                {topic: len(assignment)},
                lambda one: (
                    one.replica_nodes == assignment[one.partition_index]
                    and set(one.isr_nodes) == set(one.replica_nodes)
                ),
            )
        return time.perf_counter() - began

    def shut_down(self, broker: int) -> float:
        """Stop a broker with SIGTERM. Returns the seconds until its process has exited."""
        began = time.perf_counter()
        self.brokers[broker].stop()
        self.alive.discard(broker)
        return time.perf_counter() - began

    def topics_on_disk(self) -> set[str]:
        return {
            path.name.rpartition("-")[0]
            for broker in self.brokers.values()
            for path in broker.log_dir.iterdir()
            if not path.name.endswith("-delete")
        }

    def wait_for(self, broker: int, topics: Mapping[str, int], is_expected: IsExpected) -> None:
        """Wait until the metadata of this broker is as expected for every partition of the topics."""
        with self.connection(broker) as connection:
            for names in split_topics(topics):
                wanted = tuple(MetadataRequestTopic(name=name) for name in names)
                request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)

                def is_reported(request: MetadataRequest = request) -> bool:
                    response = connection.exchange(request, MetadataResponse, timeout_s=TIMEOUT_S)
                    return all(
                        len(topic.partitions) == topics[str(topic.name)]
                        and all(map(is_expected, topic.partitions))
                        for topic in response.topics
                    )

                self.wait(is_reported, f"broker {broker} reports {names[0]} and other topics")

    def wait_until_whole(self) -> None:
        """Wait until every broker reports that all replicas of all partitions are in sync."""
        for broker in sorted(self.alive):
            self.wait_for(
                broker,
                self.topics,
                lambda one: (
                    set(one.isr_nodes) == set(one.replica_nodes) and one.leader_id in self.alive
                ),
            )

    # ---- the controller

    def controller(self) -> int:
        with self.znodes() as znodes:
            return read_controller(znodes, self.chroot) or self.wait_for_controller(znodes)

    def wait_for_controller(self, znodes: Znodes) -> int:
        self.wait(lambda: read_controller(znodes, self.chroot) is not None, "a controller")
        return read_controller(znodes, self.chroot) or 0

    def fail_over(self) -> float:
        """Kill the controller. Returns the seconds from the end of its session until every broker reports the new
        controller and a live leader for every partition."""
        old = self.controller()
        self.brokers[old].kill()
        self.alive.discard(old)
        with self.znodes() as znodes:
            self.wait(
                lambda: read_controller(znodes, self.chroot) != old,
                "the end of a session",
                pause_s=POLL_REGISTRY_S,
            )
            began = time.perf_counter()
            for broker in sorted(self.alive):
                self.wait_until_controller_known(broker)
                self.wait_for(broker, self.topics, lambda one: one.leader_id in self.alive)
            return time.perf_counter() - began

    def wait_until_controller_known(self, broker: int) -> None:
        with self.connection(broker) as connection:

            def is_reported() -> bool:
                response = connection.exchange(MetadataRequest(topics=()), MetadataResponse)
                return response.controller_id in self.alive

            self.wait(is_reported, f"broker {broker} reports the new controller")

    def restart_killed(self) -> None:
        """Restart killed brokers, and wait until all replicas are in sync."""
        missing = [broker for number, broker in self.brokers.items() if number not in self.alive]
        start_together(missing, already=[self.brokers[number] for number in self.alive])
        self.alive = set(self.brokers)
        self.wait_until_whole()

    # ---- connections

    @contextmanager
    def connection(self, broker: int) -> Iterator[BlockingConnection]:
        connection = BlockingConnection.open(
            "127.0.0.1", self.brokers[broker].port, client_id="benchmark"
        )
        try:
            yield connection
        finally:
            connection.close()

    def znodes(self) -> Znodes:
        return Znodes(self.zookeeper.port)

    def wait(self, condition: Callable[[], bool], what: str, *, pause_s: float = POLL_S) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            for broker in self.alive:
                require_running(self.brokers[broker].running)
            if time.monotonic() > deadline:
                raise RuntimeError(f"timed out after {TIMEOUT_S:.0f} s: {what}")
            time.sleep(pause_s)


def read_controller(znodes: Znodes, chroot: str) -> int | None:
    try:
        data, _ = znodes.data(f"{chroot}/controller")
    except LookupError:
        return None
    return int(json.loads(data)["brokerid"])


def read_moving(znodes: Znodes, path: str) -> bool:
    """Return whether the topic has a partition that is being reassigned."""
    content = json.loads(znodes.data(path)[0])
    return bool(content["adding_replicas"] or content["removing_replicas"])


def split_topics(topics: Mapping[str, int]) -> Iterator[list[str]]:
    """Split the names into lists of at most PARTITIONS_PER_REQUEST partitions. A larger topic is alone in its list."""
    names: list[str] = []
    size = 0
    for name, count in topics.items():
        if names and size + count > PARTITIONS_PER_REQUEST:
            yield names
            names, size = [], 0
        names.append(name)
        size += count
    if names:
        yield names


class TrioFactory:
    """Creates clusters. They share a running ZooKeeper and a temporary directory."""

    def __init__(self, directory: Path, zookeeper: ZooKeeper) -> None:
        self.directory = directory
        self.zookeeper = zookeeper
        self.count = 0

    @contextmanager
    def ours(self) -> Iterator[Trio]:
        chroot, directory = self.place("ours")
        with running_trio(
            self.zookeeper,
            chroot,
            [
                OurBroker(
                    number,
                    directory / str(number),
                    zookeeper_connect=f"{self.zookeeper.address}{chroot}",
                    settings=SETTINGS,
                )
                for number in IDS
            ],
        ) as trio:
            yield trio

    @contextmanager
    def kafka(self) -> Iterator[Trio]:
        chroot, directory = self.place("kafka")
        java, jars = require_java(), fetch()
        with running_trio(
            self.zookeeper,
            chroot,
            [
                KafkaBroker(
                    number,
                    directory / str(number),
                    java=java,
                    jars=jars,
                    zookeeper_connect=f"{self.zookeeper.address}{chroot}",
                    settings=SETTINGS,
                    options=START_SCRIPT,
                )
                for number in IDS
            ],
        ) as trio:
            yield trio

    def place(self, kind: str) -> tuple[str, Path]:
        self.count += 1
        return f"/{kind}-{self.count}", self.directory / f"{kind}-{self.count}"


@contextmanager
def running_trio(zookeeper: ZooKeeper, chroot: str, brokers: Sequence[Member]) -> Iterator[Trio]:
    trio = Trio(zookeeper, chroot, brokers)
    try:
        yield trio
    finally:
        trio.kill()


@contextmanager
def trio_factory() -> Iterator[TrioFactory]:
    """Yield a factory. The directory, which may hold gigabytes of preallocated indexes, is removed at the end."""
    with TemporaryDirectory(prefix="barnabas-controller-") as scratch:
        directory = Path(scratch)
        with ZooKeeper(
            directory / "zookeeper", require_java(), options=ZOOKEEPER_OPTIONS
        ) as zookeeper:
            yield TrioFactory(directory, zookeeper)
