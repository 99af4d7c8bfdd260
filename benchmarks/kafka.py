"""Comparison with Apache Kafka 3.9: the same loads on both, in turns, on the same machine. The result is the ratio.

One broker of each kind runs all the time. The first round lets Java compile and is not counted. In every round each
load runs on one broker and immediately afterwards on the other. The order changes with every round.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from benchmarks import broker_lifecycle, latency
from benchmarks.broker import BenchmarkBroker
from benchmarks.kafka_process import RUN_SCRIPT, KafkaFactory, kafka_factory
from benchmarks.loads import KB, MB, TOPIC, Load
from benchmarks.suite import VARIED, load_name, produce_and_fetch
from interop.harness import jvm
from interop.harness.jars import KAFKA_3_9
from interop.harness.tools import MAIN_CLASSES

OURS, KAFKA = SIDES = ("ours", "kafka")
Found = dict[str, dict[str, list[float]]]
"""Values by measurement and side."""

BATCH_BYTES = {"frames": 16 * KB, "librdkafka": 128 * KB}
"""16 KB is the default batch.size of Kafka's producer; that of librdkafka is 1 MB."""
SPEED = re.compile(r"\(([\d.]+) MB/sec\)")
PERF_TEST_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    bytes_of: dict[tuple[str, int], int]
    partitions: tuple[int, ...]
    rounds: int
    latency_s: float
    rate: int = 1000
    start_rounds: int = 3


FULL = Extent(
    bytes_of={
        ("frames", 100): 512 * MB,
        ("frames", KB): 512 * MB,
        (VARIED, 100): 256 * MB,
        (VARIED, KB): 512 * MB,
        ("librdkafka", 100): 64 * MB,
        ("librdkafka", KB): 256 * MB,
        ("perf-test", 100): 128 * MB,
        ("perf-test", KB): 512 * MB,
    },
    partitions=(1, 8),
    rounds=3,
    latency_s=10,
)
QUICK = Extent(
    bytes_of={("frames", KB): 128 * MB, ("librdkafka", KB): 64 * MB, ("perf-test", KB): 128 * MB},
    partitions=(1,),
    rounds=3,
    latency_s=3,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One measurement of a broker."""

    name: str
    run: Callable[[BenchmarkBroker], dict[str, float]]


def measure(extent: Extent) -> Found:
    found: Found = {}
    with kafka_factory() as kafka:
        measure_starts(found, kafka, extent.start_rounds)
        with ExitStack() as stack:
            brokers = {
                OURS: stack.enter_context(BenchmarkBroker()),
                KAFKA: stack.enter_context(kafka.broker()),
            }
            measure_memory(found, brokers, "start")
            run_rounds(found, brokers, list(steps(extent, kafka)), extent.rounds)
            measure_memory(found, brokers, "loads")
    return found


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
    found: Found, brokers: dict[str, BenchmarkBroker], all_steps: list[Step], count: int
) -> None:
    turns = [
        (number, step, side)
        for number in range(count + 1)
        for step in all_steps
        for side in (SIDES if number % 2 else reversed(SIDES))
    ]
    with click.progressbar(
        turns,
        file=sys.stderr,
        item_show_func=lambda turn: f"{turn[1].name}, {turn[2]}" if turn else "",
    ) as shown:
        for number, step, side in shown:
            values = step.run(brokers[side])
            brokers[side].delete_topic(TOPIC)
            if number:
                add_values(found, side, values)


def steps(extent: Extent, kafka: KafkaFactory) -> Iterator[Step]:
    for (way, record), partitions in product(extent.bytes_of, extent.partitions):
        load = Load(
            batch_bytes=BATCH_BYTES.get(way, 16 * KB),
            record_bytes=record,
            partitions=partitions,
            total_bytes=extent.bytes_of[way, record],
            varies=way == VARIED,
        )
        run = (
            partial(run_perf_test, kafka, load)
            if way == "perf-test"
            else partial(produce_and_fetch, "frames" if load.varies else way, load)
        )
        yield Step(name=f"{way}: {load}", run=run)
    yield Step(name="latency", run=partial(measure_latency, extent))


def run_perf_test(kafka: KafkaFactory, load: Load, broker: BenchmarkBroker) -> dict[str, float]:
    """Run kafka-producer-perf-test with its defaults, in a new JVM."""
    broker.create_topic(TOPIC, load.partitions)
    count = load.total_bytes // load.record_bytes
    with TemporaryDirectory(prefix="barnabas-perf-test-") as scratch:
        command = jvm.command(
            kafka.java,
            kafka.jars.class_path(KAFKA_3_9),
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
    # The last line has the totals; its MB are 1,048,576 bytes.
    speed = float(SPEED.findall(done.stdout)[-1]) * MB / 1e6
    name = load_name("perf-test", "produce", load.record_bytes, load.batch_bytes, load.partitions)
    return {
        f"{name}/mb_per_s": speed,
        f"{name}/cpu_s_per_gb": cpu_s / (count * load.record_bytes / 1e9),
    }


def measure_latency(extent: Extent, broker: BenchmarkBroker) -> dict[str, float]:
    acknowledged, consumed = latency.measure(
        broker, acks=1, rate=extent.rate, seconds=extent.latency_s
    )
    return {
        f"latency/acks=1/{event}/{part}_ms": value
        for event, values in (("acknowledged", acknowledged), ("consumed", consumed))
        for part, value in (("p50", values.p50_ms), ("p99", values.p99_ms))
    }
