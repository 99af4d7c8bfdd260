"""Maintenance under load, on three broker processes with a real ZooKeeper: Barnabas and Kafka.

Rolling restart: each broker is stopped with SIGTERM and started again while a producer writes to every partition.
Throttled reassignment: the replicas of a large topic move from one broker to another, while a producer measures the
acknowledgements of another topic. Only one cluster runs at a time, because both use all of the machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Event
from typing import Protocol, TypeVar

import click
from confluent_kafka import Producer

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.config_admin import ConfigAdmin, ConfigChange, ConfigResource
from barnabas.model import TopicPartition
from barnabas.reassignment.throttles import RATES, to_move, topic_throttles
from barnabas.wire.messages.describe_configs import ResourceType
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from benchmarks import librdkafka
from benchmarks.controller import new_trio
from benchmarks.controller_cluster import IDS, Trio, TrioFactory, trio_factory
from benchmarks.kafka import SIDES, Found, add_values
from benchmarks.latency import percentiles
from benchmarks.loads import GB, KB, MB, TOPIC, Load

ACKS_ALL = -1
PROBED = "probed"
"""The topic whose acknowledgements are measured while another topic moves."""
SOURCE, DESTINATION = IDS[:2]
WATCH_S = 0.05
"""Pause between two looks at the leaders."""
WINDOW_S = 5
"""The highest copy rate is that of the fastest window of this length."""


class Task(Protocol):
    """Work for a thread. `run` returns soon after `stop` is set."""

    stop: Event

    def run(self) -> None: ...


T = TypeVar("T", bound=Task)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    partitions: int
    restart_rate: int
    """Records per second during the rolling restart."""
    load: Load
    """The data of the topic that moves."""
    throttle: int
    """Bytes per second."""
    probe_rate: int
    probe_s: float
    """Seconds of probing before the move."""


FULL = Extent(
    partitions=1000,
    restart_rate=100,
    load=Load(batch_bytes=MB, record_bytes=10 * KB, partitions=8, total_bytes=10 * GB),
    throttle=50_000_000,
    probe_rate=500,
    probe_s=60,
)
QUICK = Extent(
    partitions=100,
    restart_rate=100,
    load=Load(batch_bytes=MB, record_bytes=10 * KB, partitions=8, total_bytes=GB),
    throttle=50_000_000,
    probe_rate=500,
    probe_s=15,
)


def measure(extent: Extent, sides: Sequence[str] = SIDES) -> Found:
    found: Found = {}
    with trio_factory() as factory:
        for side in sides:
            measure_side(found, factory, extent, side)
    return found


def measure_side(found: Found, factory: TrioFactory, extent: Extent, side: str) -> None:
    with new_trio(factory, side) as trio:
        trio.start()
        for values in restart_in_turn(trio, extent):
            add_values(found, side, values)
    with new_trio(factory, side) as trio:
        trio.start()
        add_values(found, side, move_throttled(trio, extent))


# ---- rolling restart


def restart_in_turn(trio: Trio, extent: Extent) -> Iterator[dict[str, float]]:
    """Stop and start each broker under load. Yields the times of each broker, and at the end those of the load."""
    trio.create({TOPIC: extent.partitions}, configs={"min.insync.replicas": "2"})
    name = f"rolling restart/{extent.partitions:,} partitions"
    with running(SteadyLoad(trio, extent)) as load, running(WatchedLeaders(trio)) as leaders:
        for broker in IDS:
            click.echo(f"broker {broker} restarts", err=True)
            leaders.asked = next(other for other in IDS if other != broker)
            yield {f"{name}, controlled shutdown/s": trio.shut_down(broker)}
            trio.restart_killed()
    yield {
        f"{name}, longest without a leader/s": leaders.longest_s,
        f"{name}, slowest acknowledgement/s": max(load.delays_s),
        f"{name}, failed records/count": load.failed,
        f"{name}, acknowledged records/count": len(load.delays_s),
    }


class SteadyLoad:
    """A producer with default settings and acks=all that writes to all partitions in turn until `stop`."""

    def __init__(self, trio: Trio, extent: Extent) -> None:
        self.producer = Producer({"bootstrap.servers": trio.bootstrap_servers, "acks": ACKS_ALL})
        self.partitions = extent.partitions
        self.interval_s = 1 / extent.restart_rate
        self.delays_s: list[float] = []
        self.failed = 0
        self.stop = Event()

    def run(self) -> None:
        value = bytes(KB)
        first = time.perf_counter()
        for number in count():
            due = first + number * self.interval_s
            while (left_s := due - time.perf_counter()) > 0:
                self.producer.poll(left_s)
            if self.stop.is_set():
                break
            self.producer.produce(
                TOPIC,
                value,
                partition=number % self.partitions,
                on_delivery=lambda error, _, due=due: self.on_delivery(due, error),
            )
        self.failed += self.producer.flush(librdkafka.TIMEOUT_S)

    def on_delivery(self, due: float, error: object) -> None:
        if error is None:
            self.delays_s.append(time.perf_counter() - due)
        else:
            self.failed += 1


class WatchedLeaders:
    """Reads the leaders of all partitions from the broker `asked`. `longest_s` is the longest time that one had none.

    A partition has no leader if that broker reports none, or one whose process has exited.
    """

    def __init__(self, trio: Trio) -> None:
        self.trio = trio
        self.asked = IDS[-1]
        self.since: dict[int, float] = {}
        self.longest_s = 0.0
        self.stop = Event()

    def run(self) -> None:
        request = MetadataRequest(topics=(MetadataRequestTopic(name=TOPIC),))
        while not self.stop.is_set():
            asked = self.asked
            with self.trio.connection(asked) as connection:
                while not self.stop.wait(WATCH_S) and asked == self.asked:
                    self.note(connection.exchange(request, MetadataResponse))

    def note(self, response: MetadataResponse) -> None:
        now = time.perf_counter()
        for partition in response.topics[0].partitions:
            index = partition.partition_index
            if partition.leader_id in self.trio.alive:
                self.since.pop(index, None)
            else:
                self.longest_s = max(self.longest_s, now - self.since.setdefault(index, now))


# ---- throttled reassignment


def move_throttled(trio: Trio, extent: Extent) -> dict[str, float]:
    """Move a topic from one broker to another. The throttle is that of the tools: lists of replicas, and rates."""
    load, throttle = extent.load, extent.throttle
    source = [(SOURCE,)] * load.partitions
    target = [(DESTINATION,)] * load.partitions
    with Cluster(trio.bootstrap_servers) as cluster:
        Admin(cluster).create_topics([NewTopic(name=TOPIC, assignment=source)])
        trio.topics[TOPIC] = load.partitions
        trio.create({PROBED: 1}, configs={"min.insync.replicas": "2"})
        click.echo(f"writing {load.total_bytes / 1e9:.1f} GB", err=True)
        librdkafka.measure_produce(trio, load)
        moved_bytes = topic_bytes(trio, SOURCE)
        before = percentiles(probe(trio, extent, extent.probe_s))
        set_throttles(cluster, load.partitions, throttle)
        expected_s = moved_bytes / throttle
        click.echo(f"moving {moved_bytes / 1e9:.1f} GB, about {expected_s:.0f} s", err=True)
        growth = CopiedBytes(trio)
        with running(growth):
            began = time.perf_counter()
            with running(Reassignment(trio, target)) as reassignment:
                during = percentiles(probe(trio, extent, 0.8 * expected_s))
            took_s = reassignment.ended - began
    name = f"move/{load.total_bytes / GB:.0f} GB at {throttle / 1e6:.0f} MB/s"
    return {
        f"{name}, copy rate ÷ throttle/share": moved_bytes / took_s / throttle,
        f"{name}, fastest {WINDOW_S} s ÷ throttle/share": growth.highest_rate() / throttle,
        f"{name}, produce before/p99_ms": before.p99_ms,
        f"{name}, produce during/p99_ms": during.p99_ms,
        f"{name}, p99 during ÷ before/share": during.p99_ms / before.p99_ms,
    }


def probe(trio: Trio, extent: Extent, seconds: float) -> list[float]:
    return librdkafka.acknowledgement_delays(
        trio, rate=extent.probe_rate, seconds=seconds, acks=ACKS_ALL, topic=PROBED
    )


def set_throttles(cluster: Cluster, partitions: int, throttle: int) -> None:
    moves = {
        TopicPartition(TOPIC, number): to_move((SOURCE,), (DESTINATION,))
        for number in range(partitions)
    }
    (lists,) = topic_throttles(moves).values()
    changes = {
        ConfigResource(ResourceType.TOPIC, TOPIC): [ConfigChange(*item) for item in lists.items()]
    }
    for broker in (SOURCE, DESTINATION):
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        changes[resource] = [ConfigChange(name, str(throttle)) for name in RATES]
    for error in ConfigAdmin(cluster).incremental_alter_configs(changes).values():
        if error is not None:
            raise error


class Reassignment:
    """Moves all partitions. `ended` is when they had arrived."""

    def __init__(self, trio: Trio, target: Sequence[tuple[int, ...]]) -> None:
        self.trio = trio
        self.target = target
        self.ended = 0.0
        self.stop = Event()

    def run(self) -> None:
        self.trio.reassign(TOPIC, self.target)
        self.ended = time.perf_counter()


class CopiedBytes:
    """Notes the size of the copy once per second."""

    def __init__(self, trio: Trio) -> None:
        self.trio = trio
        self.sizes: list[tuple[float, int]] = []
        self.stop = Event()

    def run(self) -> None:
        while not self.stop.wait(1):
            self.sizes.append((time.perf_counter(), topic_bytes(self.trio, DESTINATION)))

    def highest_rate(self) -> float:
        """Return the bytes per second of the fastest window."""
        windows = zip(self.sizes, self.sizes[WINDOW_S:], strict=False)
        return max((end[1] - start[1]) / (end[0] - start[0]) for start, end in windows)


def topic_bytes(trio: Trio, broker: int) -> int:
    directory: Path = trio.brokers[broker].log_dir
    return sum(segment.stat().st_size for segment in directory.glob(f"{TOPIC}-*/*.log"))


@contextmanager
def running(task: T) -> Iterator[T]:
    """Run the task in a thread, and stop it at the end. Raises the exception of the task, if it failed."""
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(task.run)
        try:
            yield task
        finally:
            task.stop.set()
        result.result()
