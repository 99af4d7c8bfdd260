"""Replication on three broker processes with a real ZooKeeper: Barnabas and Kafka.

Both clusters run at the same time and are measured in turns. Each load goes to a topic with one replica and acks=1, and
then to a topic with three replicas, min.insync.replicas=2 and acks=all. Their ratio is the cost of replication.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import click

from benchmarks import librdkafka
from benchmarks.controller import new_trio
from benchmarks.controller_cluster import Trio, trio_factory
from benchmarks.kafka import SIDES, Found, add_values
from benchmarks.latency import percentiles
from benchmarks.loads import KB, MB, TOPIC, Load

ACKS_ALL = -1
TOPIC_CONFIGS = {"min.insync.replicas": "2"}
IDLE_TOPIC = "idle"
SETTLE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    load: Load
    rounds: int
    latency_s: float
    idle_partitions: int
    idle_s: float
    rate: int = 1000


FULL = Extent(
    load=Load(batch_bytes=128 * KB, record_bytes=KB, partitions=6, total_bytes=192 * MB),
    rounds=3,
    latency_s=10,
    idle_partitions=1000,
    idle_s=10,
)
QUICK = Extent(
    load=Load(batch_bytes=128 * KB, record_bytes=KB, partitions=6, total_bytes=64 * MB),
    rounds=1,
    latency_s=3,
    idle_partitions=100,
    idle_s=3,
)


def measure(extent: Extent, sides: Sequence[str] = SIDES) -> Found:
    found: Found = {}
    with trio_factory() as factory:
        with ExitStack() as stack:
            clusters = {side: stack.enter_context(new_trio(factory, side)) for side in sides}
            for trio in clusters.values():
                trio.start()
            run_rounds(found, clusters, extent)
        for side in sides:  # one after the other: an idle cluster uses CPU too
            with new_trio(factory, side) as trio:
                trio.start()
                add_values(found, side, measure_idle(trio, extent))
    return found


def run_rounds(found: Found, clusters: dict[str, Trio], extent: Extent) -> None:
    """Run all rounds. The first lets Java compile and is not counted."""
    turns = [
        (number, side)
        for number in range(extent.rounds + 1)
        for side in (clusters if number % 2 else reversed(clusters))
    ]
    with click.progressbar(
        turns, file=sys.stderr, item_show_func=lambda turn: turn[1] if turn else ""
    ) as shown:
        for number, side in shown:
            values = measure_throughput(clusters[side], extent) | measure_latency(
                clusters[side], extent
            )
            if number:
                add_values(found, side, values)


def measure_throughput(trio: Trio, extent: Extent) -> dict[str, float]:
    trio.create({TOPIC: extent.load.partitions}, 1)
    unreplicated = librdkafka.measure_produce(trio, extent.load, acks=1)
    trio.delete([TOPIC])
    trio.create({TOPIC: extent.load.partitions}, configs=TOPIC_CONFIGS)
    replicated = librdkafka.measure_produce(trio, extent.load, acks=ACKS_ALL)
    trio.wait_until_whole()
    trio.delete([TOPIC])
    return {
        "produce/1 replica, acks=1/mb_per_s": unreplicated.mb_per_s,
        "produce/3 replicas, acks=all/mb_per_s": replicated.mb_per_s,
        "produce/3 replicas, acks=all/cpu_s_per_gb": replicated.cpu_s_per_gb,
        "produce/acks=all ÷ acks=1/share": replicated.mb_per_s / unreplicated.mb_per_s,
    }


def measure_latency(trio: Trio, extent: Extent) -> dict[str, float]:
    """Measure the latency of a producer with default settings, which batches records while others are in flight."""
    trio.create({TOPIC: 1}, configs=TOPIC_CONFIGS)
    all_s = librdkafka.acknowledgement_delays(
        trio, rate=extent.rate, seconds=extent.latency_s, acks=ACKS_ALL
    )
    trio.delete([TOPIC])
    found = percentiles(all_s)
    name = f"latency/3 replicas, acks=all, {extent.rate:,} records a second"
    return {f"{name}/p50_ms": found.p50_ms, f"{name}/p99_ms": found.p99_ms}


def measure_idle(trio: Trio, extent: Extent) -> dict[str, float]:
    """Measure the CPU use of all three brokers together without clients, in percent of one core."""
    trio.create({IDLE_TOPIC: extent.idle_partitions})
    trio.wait_until_whole()
    time.sleep(SETTLE_S)
    cpu_s = trio.cpu_s()
    time.sleep(extent.idle_s)
    percent = (trio.cpu_s() - cpu_s) / extent.idle_s * 100
    return {f"idle/{extent.idle_partitions:,} partitions × 3/percent_of_a_core": percent}
