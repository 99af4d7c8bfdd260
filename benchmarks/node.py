"""Several brokers on one machine (`barnabas node`): throughput and CPU of one topic on 1, 2, … broker processes.

The partitions of the topic are spread over the brokers of the node, with one replica each. Prebuilt frames come from
one client process per broker, because a broker of a node is a connection of its own for every client. librdkafka is one
process. A real ZooKeeper runs beside the brokers and is not counted.

The clients share the cores with the brokers. *busy cores* is the CPU time of brokers and clients per second of the run.
If it reaches the number of cores, the machine is the limit, and more brokers cannot be faster: compare CPU-s/GB.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from uuid import UUID

import click
import psutil

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.client.login import PLAINTEXT_CONNECTIONS, ConnectionSecurity
from barnabas.client.offsets import latest_offsets
from barnabas.client.view import ClusterView
from barnabas.cluster.zookeeper_servers import ZooKeeperServers
from barnabas.model import TopicPartition
from benchmarks import librdkafka
from benchmarks.broker import (
    SETTINGS,
    START_TIMEOUT_S,
    environment_with_bytecode,
    process_cpu_s,
    recycle_pages,
)
from benchmarks.frames import FrameDriver
from benchmarks.loads import KB, MB, TOPIC, Cost, Load, format_size
from benchmarks.report import machine, spread
from support.command import COMMAND
from support.process import ChildProcess
from support.waiting import eventually

Found = dict[str, list[float]]
NODE_SETTINGS = {
    **SETTINGS,
    "broker.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "barnabas.history.topic.enable": "false",
}
UNITS = ("mb_per_s", "broker_cpu_s_per_gb", "client_cpu_s_per_gb", "busy_cores")
DIRECTIONS = ("produce", "fetch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    brokers: tuple[int, ...]
    rounds: int
    frames: tuple[Load, ...]
    librdkafka: tuple[Load, ...]


FULL = Extent(
    brokers=(1, 2),
    rounds=3,
    frames=(
        Load(batch_bytes=16 * KB, partitions=8),
        Load(batch_bytes=128 * KB, partitions=8),
        Load(batch_bytes=16 * KB, record_bytes=100, partitions=8, varies=True),
    ),
    librdkafka=(Load(batch_bytes=128 * KB, partitions=8, total_bytes=256 * MB),),
)
QUICK = replace(
    FULL,
    rounds=1,
    frames=(Load(batch_bytes=16 * KB, partitions=8, total_bytes=128 * MB),),
    librdkafka=(Load(batch_bytes=128 * KB, partitions=8, total_bytes=64 * MB),),
)


@dataclass(slots=True, kw_only=True)
class ListeningBroker:
    """The address of one broker of the node, for a client process."""

    address: tuple[str, int]
    security: ConnectionSecurity = PLAINTEXT_CONNECTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCost:
    """Cost of one run on a node, with the CPU time of the clients."""

    cost: Cost
    client_cpu_s: float

    def values(self) -> dict[str, float]:
        cost = self.cost
        return {
            "mb_per_s": cost.mb_per_s,
            "broker_cpu_s_per_gb": cost.cpu_s_per_gb,
            "client_cpu_s_per_gb": self.client_cpu_s / (cost.data_bytes / 1e9),
            "busy_cores": (cost.cpu_s + self.client_cpu_s) / cost.wall_s,
        }


class BenchmarkNode:
    """A running `barnabas node`."""

    def __init__(self, directory: Path, zookeeper: str, brokers: int) -> None:
        self.directory = directory
        settings = {
            **NODE_SETTINGS,
            "log.dirs": str(directory / "data"),
            "zookeeper.connect": zookeeper,
        }
        config = directory / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.process = ChildProcess(
            "the node",
            [*COMMAND, "node", str(config), f"--brokers={brokers}"],
            log=directory / "node.log",
            environment=environment_with_bytecode(),
            is_piped=True,
        )
        line = self.process.read_line(START_TIMEOUT_S)
        while (
            ", data in " not in line and "data in " not in line
        ):  # long lists of servers are wrapped
            line += self.process.read_line(START_TIMEOUT_S)
        servers = line.partition(") at ")[2].partition("data in ")[0]
        self.client_settings: dict[str, object] = {}
        self.bootstrap_servers = servers.replace(" ", "").strip(",")
        supervisor = psutil.Process(self.process.pid)
        self.pids = [supervisor.pid, *(each.pid for each in supervisor.children())]

    def cpu_s(self) -> float:
        """Return the user and system time of the supervisor and all brokers so far."""
        return sum(map(process_cpu_s, self.pids))

    def create_topic(self, partitions: int) -> tuple[UUID, dict[tuple[str, int], list[int]]]:
        """Create the topic. Returns its id, and the partitions that each broker leads, by address."""
        with Cluster(self.bootstrap_servers) as cluster:
            wanted = NewTopic(name=TOPIC, partitions=partitions, replication_factor=1)
            (outcome,) = Admin(cluster).create_topics([wanted])
            if outcome.error:
                raise outcome.error
            # Another broker may learn of the topic a moment later than the controller.
            eventually(
                lambda: is_led(cluster.refresh([TOPIC]), partitions), "all partitions are led"
            )
            view = cluster.view
        led: dict[tuple[str, int], list[int]] = {}
        for each in view.topics[TOPIC].partitions:
            leader = view.brokers[each.leader]
            led.setdefault((leader.host, leader.port), []).append(each.partition)
        return outcome.topic_id, led

    def count_records(self, partitions: int) -> int:
        wanted = [TopicPartition(TOPIC, number) for number in range(partitions)]
        with Cluster(self.bootstrap_servers) as cluster:
            return sum(latest_offsets(cluster, wanted).values())


def is_led(view: ClusterView, partitions: int) -> bool:
    """Return whether the metadata shows the topic, with a live leader for each partition."""
    topic = view.topics.get(TOPIC)
    leaders = [each.leader for each in topic.partitions] if topic is not None else []
    return len(leaders) == partitions and set(leaders) <= view.brokers.keys()


@contextmanager
def new_node(zookeeper: str, brokers: int) -> Iterator[BenchmarkNode]:
    """Start a node in a new directory. Each node has its own part of the ZooKeeper, and is a cluster of its own."""
    with tempfile.TemporaryDirectory(prefix="barnabas-benchmark-") as name:
        node = BenchmarkNode(Path(name), f"{zookeeper}{Path(name).name}", brokers)
        try:
            yield node
        finally:
            node.process.stop_or_kill()


# ---- clients


class FrameClient:
    """A process that sends prebuilt frames to one broker."""

    def __init__(
        self, address: tuple[str, int], topic_id: UUID, load: Load, numbers: list[int]
    ) -> None:
        own = replace(
            load,
            partitions=len(numbers),
            total_bytes=load.total_bytes * len(numbers) // load.partitions,
        )
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=serve_commands, args=(theirs, address, topic_id, own, numbers), daemon=True
        )
        self.process.start()
        theirs.close()

    def close(self) -> None:
        self.pipe.close()
        self.process.join()


def serve_commands(
    pipe: Connection, address: tuple[str, int], topic_id: UUID, load: Load, numbers: list[int]
) -> None:
    """Run the commands of the parent, until it closes the pipe. Each answer is (bytes, CPU seconds)."""
    driver = FrameDriver(ListeningBroker(address=address), topic_id, load, numbers)
    plan: list[tuple[list[bytes], int]] = []

    def produce(batches: int) -> int:
        driver.produce(batches)
        return batches * load.batch_bytes

    def warm_up() -> int:
        produce(load.warm_up_batches)
        return 0

    def prepare_fetch() -> int:
        frames, size = driver.fetch_plan()
        driver.fetch(frames[: max(1, len(frames) // 20)])
        plan.append((frames, size))
        return 0

    def fetch() -> int:
        frames, size = plan.pop()
        received = driver.fetch(frames)
        if not size <= received < size * 1.05 + MB:
            raise RuntimeError(f"received {received} bytes for {size} bytes of records")
        return size

    commands: dict[str, Callable[[], int]] = {
        "warm up": warm_up,
        "produce": lambda: produce(load.batches),
        "count": lambda: driver.produced * driver.records_per_batch,
        "prepare fetch": prepare_fetch,
        "fetch": fetch,
    }
    try:
        while True:
            command = commands[pipe.recv()]
            began = time.process_time()
            done = command()
            pipe.send((done, time.process_time() - began))
    except EOFError:
        driver.close()


def run_together(clients: Sequence[FrameClient], command: str) -> tuple[int, float]:
    """Run a command in all clients at the same time. Returns the sums of their bytes and CPU seconds."""
    for each in clients:
        each.pipe.send(command)
    answers = [each.pipe.recv() for each in clients]
    return sum(done for done, _ in answers), sum(cpu_s for _, cpu_s in answers)


def measure_frames(node: BenchmarkNode, load: Load) -> dict[str, NodeCost]:
    topic_id, led = node.create_topic(load.partitions)
    clients = [FrameClient(address, topic_id, load, numbers) for address, numbers in led.items()]
    try:
        run_together(clients, "warm up")
        produced = measure_command(node, clients, "produce")
        expected, _ = run_together(clients, "count")
        if node.count_records(load.partitions) != expected:
            raise RuntimeError(f"the topic does not have {expected} records")
        run_together(clients, "prepare fetch")
        return {"produce": produced, "fetch": measure_command(node, clients, "fetch")}
    finally:
        for each in clients:
            each.close()


def measure_command(node: BenchmarkNode, clients: Sequence[FrameClient], command: str) -> NodeCost:
    cpu_s, began = node.cpu_s(), time.perf_counter()
    data_bytes, client_cpu_s = run_together(clients, command)
    wall_s = time.perf_counter() - began
    cost = Cost(data_bytes=data_bytes, wall_s=wall_s, cpu_s=node.cpu_s() - cpu_s)
    return NodeCost(cost=cost, client_cpu_s=client_cpu_s)


def measure_librdkafka(node: BenchmarkNode, load: Load) -> dict[str, NodeCost]:
    """Measure both directions. The share of the warm-up in the CPU time of the client is estimated from its records."""
    node.create_topic(load.partitions)
    warm_up, count = librdkafka.record_counts(load)
    share = count / (warm_up + count)
    found = {}
    for direction, measure_one in zip(
        DIRECTIONS, (librdkafka.measure_produce, librdkafka.measure_consume), strict=True
    ):
        began = time.process_time()
        cost = measure_one(node, load)
        found[direction] = NodeCost(cost=cost, client_cpu_s=share * (time.process_time() - began))
    return found


# ---- rounds and report


def measure(extent: Extent) -> Found:
    """Run every load on every number of brokers, once per round. The order of the numbers changes with each round."""
    found: Found = {}
    loads = [("frames", load, measure_frames) for load in extent.frames]
    loads += [("librdkafka", load, measure_librdkafka) for load in extent.librdkafka]
    turns = [
        (brokers, way, load, run)
        for number in range(extent.rounds)
        for way, load, run in loads
        for brokers in extent.brokers[:: -1 if number % 2 else 1]
    ]
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-benchmark-"))
        servers = ZooKeeperServers(Path(directory))
        servers.start()
        stack.callback(servers.stop)
        shown = stack.enter_context(
            click.progressbar(
                turns,
                file=sys.stderr,
                item_show_func=lambda turn: f"{turn[1]}, {turn[0]} brokers" if turn else "",
            )
        )
        for brokers, way, load, run in shown:
            with new_node(f"{servers.connect_string}/", brokers) as node:
                recycle_pages(node.directory, load.total_bytes)
                for direction, cost in run(node, load).items():
                    for unit, value in cost.values().items():
                        name = f"{load_label(way, direction, load)}/{brokers} brokers/{unit}"
                        found.setdefault(name, []).append(value)
    return found


def load_label(way: str, direction: str, load: Load) -> str:
    record = f"{'~' if load.varies else ''}{format_size(load.record_bytes)}"
    return f"{direction} {way} {record} in {format_size(load.batch_bytes)}, {load.partitions} p."


def table(found: Found) -> Iterator[str]:
    """Yield the medians, and the speed compared to the smallest number of brokers."""
    columns = ("MB/s", "broker CPU-s/GB", "client CPU-s/GB", "busy cores", "speed-up")
    yield f"{'':44}{'brokers':>8}" + "".join(f"{each:>17}" for each in columns)
    base: dict[str, float] = {}
    parts = [key.split("/") for key in found]
    labels = list(dict.fromkeys(label for label, _, _ in parts))
    rows = {(labels.index(label), int(brokers.split()[0])) for label, brokers, _ in parts}
    for number, brokers in sorted(rows):
        label = labels[number]
        medians = [statistics.median(found[f"{label}/{brokers} brokers/{unit}"]) for unit in UNITS]
        speed_up = medians[0] / base.setdefault(label, medians[0])
        numbers = [f"{medians[0]:.0f}", *(f"{each:.2f}" for each in medians[1:])]
        cells = "".join(f"{each:>17}" for each in (*numbers, f"{speed_up:.2f}"))
        yield f"{label:44}{brokers:>8}{cells}"


def write_json(path: Path, found: Found, *, quick: bool) -> None:
    measurements = {
        name: dict(zip(("min", "median", "max"), spread(values), strict=True)) | {"values": values}
        for name, values in found.items()
    }
    content = {"machine": machine(), "quick": quick, "measurements": measurements}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
