"""Three brokers that copy from each other, ours beside Kafka's: processes of their own around a real ZooKeeper.

Both clusters are up at the same time and take turns. Each load goes to a topic of a single replica with acks=1 and then
to one of three replicas with acks=all, of which two must have a record: what copying costs is the one divided by the
other.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import click

from benchmarks import librdkafka
from benchmarks.controller import cluster
from benchmarks.controller_cluster import Trio, trios
from benchmarks.kafka import SIDES, Found, note
from benchmarks.latency import summary
from benchmarks.loads import KB, MB, TOPIC, Load

ALL = -1
SAFE = {"min.insync.replicas": "2"}
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
    with trios() as places:
        with ExitStack() as stack:
            clusters = {side: stack.enter_context(cluster(places, side)) for side in sides}
            for trio in clusters.values():
                trio.start()
            rounds(found, clusters, extent)
        for side in sides:  # even an idle one would take its share of the machine
            with cluster(places, side) as trio:
                trio.start()
                note(found, side, idle(trio, extent))
    return found


def rounds(found: Found, clusters: dict[str, Trio], extent: Extent) -> None:
    """The first is for Java to compile what it will, and does not count."""
    turns = [
        (number, side)
        for number in range(extent.rounds + 1)
        for side in (clusters if number % 2 else reversed(clusters))
    ]
    with click.progressbar(
        turns, file=sys.stderr, item_show_func=lambda turn: turn[1] if turn else ""
    ) as shown:
        for number, side in shown:
            values = throughput(clusters[side], extent) | delays(clusters[side], extent)
            if number:
                note(found, side, values)


def throughput(trio: Trio, extent: Extent) -> dict[str, float]:
    trio.create({TOPIC: extent.load.partitions}, 1)
    single = librdkafka.measure_produce(trio, extent.load, acks=1)
    trio.delete([TOPIC])
    trio.create({TOPIC: extent.load.partitions}, configs=SAFE)
    copied = librdkafka.measure_produce(trio, extent.load, acks=ALL)
    trio.wait_until_whole()
    trio.delete([TOPIC])
    return {
        "produce/1 replica, acks=1/mb_per_s": single.mb_per_s,
        "produce/3 replicas, acks=all/mb_per_s": copied.mb_per_s,
        "produce/3 replicas, acks=all/cpu_s_per_gb": copied.cpu_s_per_gb,
        "produce/acks=all ÷ acks=1/share": copied.mb_per_s / single.mb_per_s,
    }


def delays(trio: Trio, extent: Extent) -> dict[str, float]:
    """Of a producer as applications have it: records that come while others are under way go together."""
    trio.create({TOPIC: 1}, configs=SAFE)
    all_s = librdkafka.acknowledgement_delays(
        trio, rate=extent.rate, seconds=extent.latency_s, acks=ALL
    )
    trio.delete([TOPIC])
    found = summary(all_s)
    name = f"latency/3 replicas, acks=all, {extent.rate:,} records a second"
    return {f"{name}/p50_ms": found.p50_ms, f"{name}/p99_ms": found.p99_ms}


def idle(trio: Trio, extent: Extent) -> dict[str, float]:
    """Percent of one core that all three take together while nobody asks anything of them."""
    trio.create({IDLE_TOPIC: extent.idle_partitions})
    trio.wait_until_whole()
    time.sleep(SETTLE_S)
    cpu_s = trio.cpu_s()
    time.sleep(extent.idle_s)
    percent = (trio.cpu_s() - cpu_s) / extent.idle_s * 100
    return {f"idle/{extent.idle_partitions:,} partitions × 3/percent_of_a_core": percent}
