"""Three brokers of one kind around a ZooKeeper: what is asked of them, and how it is seen that it was done.

A topic is there when every broker tells its leaders; a controller is there when every broker names it. Both are asked
of the brokers' metadata, some partitions at a time, and what was seen once is not asked for again: looking must not
cost what is looked at.
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
from benchmarks.kafka_process import START_SCRIPT
from interop.harness.jars import fetch, require_java
from interop.harness.kafka import KafkaBroker
from interop.harness.member import Member, start_together
from interop.harness.ours import OurBroker
from interop.harness.znodes import Znodes
from interop.harness.zookeeper import ZooKeeper
from support.process import require_running

IDS = (1, 2, 3)
REPLICAS = 3
SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "auto.create.topics.enable": "false",
    # Nothing but what is measured moves leaders.
    "auto.leader.rebalance.enable": "false",
    # Room for an index is laid out before it is needed, two for each of 30,000 logs.
    "log.index.size.max.bytes": "65536",
}
# With memory for the znodes of 10,000 partitions of both, and compiled as a server that stays.
ZOOKEEPER_OPTIONS = ("-XX:+UseSerialGC", "-Xshare:auto", "-Xms256m", "-Xmx1g")
ASKED_AT_ONCE = 250
POLL_S = 0.05
POLL_REGISTRY_S = 0.003
PATIENCE_S = 300.0

IsGood = Callable[[MetadataResponsePartition], bool]


class Trio:
    """Up from `start` to `kill`. `topics` are those there are, with their numbers of partitions."""

    def __init__(self, zookeeper: ZooKeeper, chroot: str, brokers: Sequence[Member]) -> None:
        self.zookeeper = zookeeper
        self.chroot = chroot
        self.brokers = {broker.broker_id: broker for broker in brokers}
        self.alive: set[int] = set()
        self.topics: dict[str, int] = {}

    def start(self) -> float:
        """Seconds until each knows all."""
        began = time.perf_counter()
        start_together(list(self.brokers.values()))
        self.alive = set(self.brokers)
        return time.perf_counter() - began

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        self.alive.clear()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers.values())

    def cpu_s(self) -> float:
        """User and system time of all three so far."""
        times = (psutil.Process(one.running.pid).cpu_times() for one in self.brokers.values())
        return float(sum(each.user + each.system for each in times))

    def resident_mb(self, broker: int) -> float:
        return float(psutil.Process(self.brokers[broker].running.pid).memory_info().rss / 1e6)

    # ---- topics

    def create(
        self,
        topics: Mapping[str, int],
        replicas: int = REPLICAS,
        configs: Mapping[str, str] | None = None,
    ) -> float:
        """Seconds until every broker tells the leaders of all their partitions."""
        settings = tuple(CreatableTopicConfig(*each) for each in (configs or {}).items())
        wanted = tuple(
            CreatableTopic(name, count, replicas, configs=settings)
            for name, count in topics.items()
        )
        request = CreateTopicsRequest(topics=wanted, timeout_ms=int(PATIENCE_S * 1000))
        began = time.perf_counter()
        with self.connection(self.controller()) as connection:
            answer = connection.exchange(request, CreateTopicsResponse, timeout_s=PATIENCE_S)
        for topic in answer.topics:
            raise_if(topic.error_code, f"{topic.name}: {topic.error_message}")
        self.topics |= topics
        for broker in sorted(self.alive):
            self.wait_for(broker, topics, lambda one: one.leader_id in self.alive)
        return time.perf_counter() - began

    def delete(self, topics: Sequence[str]) -> float:
        """Seconds until nothing of them is left in the registry, and on disks only what is to be removed: the next
        topics find an empty cluster again."""
        began = time.perf_counter()
        names = tuple(DeleteTopicState(name) for name in topics)
        request = DeleteTopicsRequest(topics=names, timeout_ms=int(PATIENCE_S * 1000))
        with self.connection(self.controller()) as connection:
            answer = connection.exchange(request, DeleteTopicsResponse, timeout_s=PATIENCE_S)
        for topic in answer.responses:
            raise_if(topic.error_code, f"{topic.name}: {topic.error_message}")
        self.topics = {name: self.topics[name] for name in self.topics.keys() - set(topics)}
        gone = set(topics)
        with self.znodes() as znodes:
            for path in ("/admin/delete_topics", "/brokers/topics", "/config/topics"):
                self.wait(
                    lambda path=path: gone.isdisjoint(znodes.children(self.chroot + path)),  # type: ignore[misc]
                    f"{len(topics)} topics gone from {path}",
                )
        self.wait(lambda: gone.isdisjoint(self.topics_on_disk()), f"{len(topics)} topics off disks")
        return time.perf_counter() - began

    def topics_on_disk(self) -> set[str]:
        return {
            path.name.rpartition("-")[0]
            for broker in self.brokers.values()
            for path in broker.log_dir.iterdir()
            if not path.name.endswith("-delete")
        }

    def wait_for(self, broker: int, topics: Mapping[str, int], is_good: IsGood) -> None:
        """Until this broker's metadata tells of every partition what it should."""
        with self.connection(broker) as connection:
            for names in portions(topics):
                wanted = tuple(MetadataRequestTopic(name=name) for name in names)
                request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)

                def is_told(request: MetadataRequest = request) -> bool:
                    answer = connection.exchange(request, MetadataResponse, timeout_s=PATIENCE_S)
                    return all(
                        len(topic.partitions) == topics[str(topic.name)]
                        and all(map(is_good, topic.partitions))
                        for topic in answer.topics
                    )

                self.wait(is_told, f"broker {broker} tells of {names[0]} and others")

    def wait_until_whole(self) -> None:
        """All brokers are in the ISR of all partitions, as every broker tells."""
        for broker in sorted(self.alive):
            self.wait_for(
                broker,
                self.topics,
                lambda one: set(one.isr_nodes) == self.alive and one.leader_id in self.alive,
            )

    # ---- the controller

    def controller(self) -> int:
        with self.znodes() as znodes:
            return controller_in(znodes, self.chroot) or self.wait_for_controller(znodes)

    def wait_for_controller(self, znodes: Znodes) -> int:
        self.wait(lambda: controller_in(znodes, self.chroot) is not None, "a controller")
        return controller_in(znodes, self.chroot) or 0

    def fail_over(self) -> float:
        """The controller is killed. Seconds from the end of its session until every broker names the next and tells
        a leader that lives for every partition."""
        old = self.controller()
        self.brokers[old].kill()
        self.alive.discard(old)
        with self.znodes() as znodes:
            self.wait(
                lambda: controller_in(znodes, self.chroot) != old,
                "the end of a session",
                pause_s=POLL_REGISTRY_S,
            )
            began = time.perf_counter()
            for broker in sorted(self.alive):
                self.wait_for_its_name(broker)
                self.wait_for(broker, self.topics, lambda one: one.leader_id in self.alive)
            return time.perf_counter() - began

    def wait_for_its_name(self, broker: int) -> None:
        with self.connection(broker) as connection:

            def is_told() -> bool:
                told = connection.exchange(MetadataRequest(topics=()), MetadataResponse)
                return told.controller_id in self.alive

            self.wait(is_told, f"broker {broker} names the new controller")

    def bring_back(self) -> None:
        """Who was killed, until everything is as before."""
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
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            for broker in self.alive:
                require_running(self.brokers[broker].running)
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {PATIENCE_S:.0f} s: {what}")
            time.sleep(pause_s)


def controller_in(znodes: Znodes, chroot: str) -> int | None:
    try:
        data, _ = znodes.data(f"{chroot}/controller")
    except LookupError:
        return None
    return int(json.loads(data)["brokerid"])


def portions(topics: Mapping[str, int]) -> Iterator[list[str]]:
    """Names whose partitions are not too many together, or one that has more."""
    portion: list[str] = []
    size = 0
    for name, count in topics.items():
        if portion and size + count > ASKED_AT_ONCE:
            yield portion
            portion, size = [], 0
        portion.append(name)
        size += count
    if portion:
        yield portion


class Trios:
    """Where clusters come from: a ZooKeeper that runs, and a directory that is gone afterwards."""

    def __init__(self, directory: Path, zookeeper: ZooKeeper) -> None:
        self.directory = directory
        self.zookeeper = zookeeper
        self.count = 0

    @contextmanager
    def ours(self) -> Iterator[Trio]:
        chroot, directory = self.place("ours")
        with running(
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
        with running(
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
def running(zookeeper: ZooKeeper, chroot: str, brokers: Sequence[Member]) -> Iterator[Trio]:
    trio = Trio(zookeeper, chroot, brokers)
    try:
        yield trio
    finally:
        trio.kill()


@contextmanager
def trios() -> Iterator[Trios]:
    """Each may fill gigabytes with room for indexes that stay empty; nothing is left of it."""
    with TemporaryDirectory(prefix="barnabas-controller-") as scratch:
        directory = Path(scratch)
        with ZooKeeper(
            directory / "zookeeper", require_java(), options=ZOOKEEPER_OPTIONS
        ) as zookeeper:
            yield Trios(directory, zookeeper)
