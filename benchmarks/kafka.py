"""Comparison with Apache Kafka 3.9: the same loads on both, in turns, on the same machine. The result is the ratio.

One broker of each kind runs all the time. The first round lets Java compile and is not counted. In every round each
load runs on one broker and immediately afterwards on the other. The order changes with every round.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Generic, TypeVar

import click

from benchmarks import broker_lifecycle, latency
from benchmarks.broker import BenchmarkBroker
from benchmarks.kafka_process import RUN_SCRIPT, KafkaFactory, kafka_factory
from benchmarks.loads import CODECS, KB, MB, NO_CODEC, TOPIC, Cost, Load, format_size
from benchmarks.suite import cost_values, load_kind, load_name, produce_and_fetch
from interop.harness import jvm
from interop.harness.jars import KAFKA_3_9, fetch, require_java
from interop.harness.tools import MAIN_CLASSES

OURS, KAFKA = SIDES = ("ours", "kafka")
Found = dict[str, dict[str, list[float]]]
"""Values by measurement and side."""

CLIENT_BATCH_BYTES = {"librdkafka": 128 * KB, "perf-test": 16 * KB}
"""16 KB is the default batch.size of Kafka's producer; that of librdkafka is 1 MB."""
START = "start"
SPEED = re.compile(r"\(([\d.]+) MB/sec\)")
PERF_TEST_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Parameters of a run. Frames have every combination of the sizes, partitions and codecs."""

    record_sizes: tuple[int, ...] = (100, KB)
    batch_sizes: tuple[int, ...] = (16 * KB, 128 * KB)
    partitions: tuple[int, ...]
    codecs: tuple[str, ...] = CODECS
    plain_bytes: int
    compressed_bytes: int
    """Amount of data of each load of compressed frames, before compression."""
    client_bytes: dict[tuple[str, int], int]
    """Amount of data by client and record size."""
    rounds: int
    latency_s: float
    start_rounds: int
    rate: int = 1000


FULL = Extent(
    partitions=(1, 8),
    plain_bytes=512 * MB,
    compressed_bytes=256 * MB,
    client_bytes={
        ("librdkafka", 100): 64 * MB,
        ("librdkafka", KB): 256 * MB,
        ("perf-test", 100): 128 * MB,
        ("perf-test", KB): 512 * MB,
    },
    rounds=3,
    latency_s=10,
    start_rounds=3,
)
QUICK = Extent(
    partitions=(1,),
    plain_bytes=64 * MB,
    compressed_bytes=32 * MB,
    client_bytes={("librdkafka", KB): 64 * MB, ("perf-test", KB): 128 * MB},
    rounds=1,
    latency_s=3,
    start_rounds=1,
)

Side = TypeVar("Side")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Generic[Side]):
    """One measurement of a broker, or of a cluster."""

    name: str
    run: Callable[[Side], dict[str, float]]


def measure(extent: Extent, chosen: Iterable[str]) -> Found:
    """Measure the chosen steps with one broker of each kind."""
    found: Found = {}
    names = set(chosen)
    chosen_steps = [step for step in steps(extent) if step.name in names]
    if START not in names and not chosen_steps:
        return found
    with kafka_factory() as kafka:
        if START in names:
            measure_starts(found, kafka, extent.start_rounds)
        if chosen_steps:
            with ExitStack() as stack:
                brokers = {
                    OURS: stack.enter_context(BenchmarkBroker()),
                    KAFKA: stack.enter_context(kafka.broker()),
                }
                measure_memory(found, brokers, "start")
                run_rounds(found, brokers, chosen_steps, extent.rounds)
                measure_memory(found, brokers, "loads")
    return found


def step_names(extent: Extent) -> list[str]:
    return [START, *(step.name for step in steps(extent))]


def add_values(found: Found, side: str, values: dict[str, float]) -> None:
    for name, value in values.items():
        found.setdefault(name, {one: [] for one in SIDES})[side].append(value)


def measure_starts(found: Found, kafka: KafkaFactory, count: int) -> None:
    for _ in range(count):
        add_values(found, OURS, {"start/first_record/s": broker_lifecycle.measure_process_start()})
        first_record_s = broker_lifecycle.measure_process_start(kafka.broker())
        add_values(found, KAFKA, {"start/first_record/s": first_record_s})


def measure_memory(found: Found, brokers: dict[str, BenchmarkBroker], after: str) -> None:
    for side, broker in brokers.items():
        add_values(
            found, side, {f"memory/after {after}/resident_mb": broker.resident_bytes() / 1e6}
        )


def run_rounds(
    found: Found, sides: Mapping[str, Side], all_steps: list[Step[Side]], count: int
) -> None:
    """Run all rounds. The first lets Java compile and is not counted."""
    turns = [
        (number, step, side)
        for number in range(count + 1)
        for step in all_steps
        for side in (sides if number % 2 else reversed(list(sides)))
    ]
    with click.progressbar(
        turns,
        file=sys.stderr,
        item_show_func=lambda turn: f"{turn[1].name}, {turn[2]}" if turn else "",
    ) as shown:
        for number, step, side in shown:
            values = step.run(sides[side])
            if number:
                add_values(found, side, values)


def steps(extent: Extent) -> Iterator[Step[BenchmarkBroker]]:
    for load in frame_loads(extent):
        yield load_step("frames", load, partial(produce_and_fetch, "frames", load))
    for (way, record), partitions in product(extent.client_bytes, extent.partitions):
        load = Load(
            batch_bytes=CLIENT_BATCH_BYTES[way],
            record_bytes=record,
            partitions=partitions,
            total_bytes=extent.client_bytes[way, record],
        )
        run = partial(run_perf_test, load)
        if way == "librdkafka":
            run = partial(produce_and_fetch, way, load)
        yield load_step(way, load, run)
    yield Step(
        name="latency/acks=1", run=partial(run_on_new_topic, partial(measure_latency, extent))
    )


def frame_loads(extent: Extent) -> Iterator[Load]:
    for codec, varies, record, batch, partitions in product(
        extent.codecs, (False, True), extent.record_sizes, extent.batch_sizes, extent.partitions
    ):
        yield Load(
            batch_bytes=batch,
            record_bytes=record,
            partitions=partitions,
            total_bytes=extent.plain_bytes if codec == NO_CODEC else extent.compressed_bytes,
            varies=varies,
            codec=codec,
        )


def load_step(
    way: str, load: Load, run: Callable[[BenchmarkBroker], dict[str, float]]
) -> Step[BenchmarkBroker]:
    """Return a step that is named like its measurements, without the direction: varied-lz4/1k/128k/8p."""
    sizes = f"{format_size(load.record_bytes)}/{format_size(load.batch_bytes)}/{load.partitions}p"
    return Step(name=f"{load_kind(way, load)}/{sizes}", run=partial(run_on_new_topic, run))


def run_on_new_topic(
    run: Callable[[BenchmarkBroker], dict[str, float]], broker: BenchmarkBroker
) -> dict[str, float]:
    """Run a load, which creates the topic, and delete the topic."""
    values = run(broker)
    broker.delete_topic(TOPIC)
    return values


def run_perf_test(load: Load, broker: BenchmarkBroker) -> dict[str, float]:
    """Run kafka-producer-perf-test with its defaults, in a new JVM."""
    broker.create_topic(TOPIC, load.partitions)
    count = load.total_bytes // load.record_bytes
    with TemporaryDirectory(prefix="barnabas-perf-test-") as scratch:
        command = jvm.command(
            require_java(),
            fetch().class_path(KAFKA_3_9),
            MAIN_CLASSES["kafka-producer-perf-test"],
            *("--topic", TOPIC, "--throughput", "-1"),
            *("--num-records", str(count), "--record-size", str(load.record_bytes)),
            *("--producer-props", f"bootstrap.servers={broker.bootstrap_servers}", "acks=1"),
            scratch=Path(scratch),
            options=RUN_SCRIPT,
        )
        cpu_s = broker.cpu_s()
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PERF_TEST_TIMEOUT_S, check=True
        )
        cpu_s = broker.cpu_s() - cpu_s
    data_bytes = count * load.record_bytes
    # The last line has the totals, without the start of the JVM; its MB are 1,048,576 bytes.
    wall_s = data_bytes / (float(SPEED.findall(done.stdout)[-1]) * MB)
    name = load_name("perf-test", "produce", load.record_bytes, load.batch_bytes, load.partitions)
    return cost_values(name, Cost(data_bytes=data_bytes, wall_s=wall_s, cpu_s=cpu_s))


def measure_latency(extent: Extent, broker: BenchmarkBroker) -> dict[str, float]:
    acknowledged, consumed = latency.measure(
        broker, acks=1, rate=extent.rate, seconds=extent.latency_s
    )
    return {
        f"latency/acks=1/{event}/{part}_ms": value
        for event, values in (("acknowledged", acknowledged), ("consumed", consumed))
        for part, value in (("p50", values.p50_ms), ("p99", values.p99_ms))
    }
