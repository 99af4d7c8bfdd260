"""Replication on three broker processes with a real ZooKeeper: Barnabas and Kafka.

Both clusters run at the same time and are measured in turns. Loads with acks=all go to a topic with three replicas and
min.insync.replicas=2. Their speed divided by that of one replica with acks=1 shows the cost of replication. The state
of transactions has three replicas too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from benchmarks import librdkafka
from benchmarks.controller import new_trio
from benchmarks.controller_cluster import Trio, TrioFactory, trio_factory
from benchmarks.kafka import SIDES, Found, Step, add_values, run_rounds
from benchmarks.latency import percentiles
from benchmarks.loads import KB, MB, TOPIC, Cost, Load
from benchmarks.suite import cost_values

ACKS_ALL = -1
TOPIC_CONFIGS = {"min.insync.replicas": "2"}
IDLE_TOPIC = "idle"
SETTLE_S = 5.0
TRANSACTIONS_WARM_UP = 100
TRANSACTION_PARTITIONS = 3
TRANSACTION_RECORDS = 100
TRANSACTION_RECORD_BYTES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    load: Load
    rounds: int
    latency_s: float
    idle_partitions: int
    idle_s: float
    transactions: int
    """Number of measured transactions."""
    rate: int = 1000


FULL = Extent(
    load=Load(batch_bytes=128 * KB, record_bytes=KB, partitions=6, total_bytes=192 * MB),
    rounds=3,
    latency_s=10,
    idle_partitions=1000,
    idle_s=10,
    transactions=500,
)
QUICK = Extent(
    load=Load(batch_bytes=128 * KB, record_bytes=KB, partitions=6, total_bytes=64 * MB),
    rounds=1,
    latency_s=3,
    idle_partitions=100,
    idle_s=3,
    transactions=200,
)


def measure(extent: Extent, sides: Sequence[str] = SIDES) -> Found:
    found: Found = {}
    with trio_factory() as factory:
        measure_loads(found, factory, extent, sides, [*steps(extent), share_step(extent)])
        for side in sides:  # one after the other: an idle cluster uses CPU too
            with new_trio(factory, side) as trio:
                trio.start()
                add_values(found, side, measure_idle(trio, extent))
    return found


def measure_chosen(extent: Extent, chosen: Iterable[str]) -> Found:
    """Measure the chosen steps with three brokers of each kind."""
    found: Found = {}
    names = set(chosen)
    if chosen_steps := [step for step in steps(extent) if step.name in names]:
        with trio_factory() as factory:
            measure_loads(found, factory, extent, SIDES, chosen_steps)
    return found


def measure_loads(
    found: Found,
    factory: TrioFactory,
    extent: Extent,
    sides: Sequence[str],
    all_steps: list[Step[Trio]],
) -> None:
    with ExitStack() as stack:
        clusters = {side: stack.enter_context(new_trio(factory, side)) for side in sides}
        for trio in clusters.values():
            trio.start()
        run_rounds(found, clusters, all_steps, extent.rounds)


def step_names(extent: Extent) -> list[str]:
    return [step.name for step in steps(extent)]


def steps(extent: Extent) -> Iterator[Step[Trio]]:
    yield Step(name="replicas/acks=all/produce", run=partial(measure_replicated, extent))
    yield Step(name="replicas/acks=all/latency", run=partial(measure_latency, extent))
    yield Step(name="replicas/transactions", run=partial(measure_transactions, extent))


def measure_replicated(extent: Extent, trio: Trio) -> dict[str, float]:
    return cost_values("replicas/acks=all/produce", produce_replicated(extent, trio))


def produce_replicated(extent: Extent, trio: Trio) -> Cost:
    trio.create({TOPIC: extent.load.partitions}, configs=TOPIC_CONFIGS)
    cost = librdkafka.measure_produce(trio, extent.load, acks=ACKS_ALL)
    trio.wait_until_whole()
    trio.delete([TOPIC])
    return cost


def share_step(extent: Extent) -> Step[Trio]:
    return Step(name="replicas/acks=all ÷ acks=1", run=partial(measure_share, extent))


def measure_share(extent: Extent, trio: Trio) -> dict[str, float]:
    """Compare with one replica and acks=1. Both loads run directly after each other."""
    trio.create({TOPIC: extent.load.partitions}, 1)
    unreplicated = librdkafka.measure_produce(trio, extent.load, acks=1)
    trio.delete([TOPIC])
    share = produce_replicated(extent, trio).mb_per_s / unreplicated.mb_per_s
    return {
        "replicas/acks=1, 1 replica/produce/mb_per_s": unreplicated.mb_per_s,
        "replicas/acks=all ÷ acks=1/share": share,
    }


def measure_latency(extent: Extent, trio: Trio) -> dict[str, float]:
    """Measure the latency of a producer with default settings, which batches records while others are in flight."""
    trio.create({TOPIC: 1}, configs=TOPIC_CONFIGS)
    all_s = librdkafka.acknowledgement_delays(
        trio, rate=extent.rate, seconds=extent.latency_s, acks=ACKS_ALL
    )
    trio.delete([TOPIC])
    found = percentiles(all_s)
    name = "replicas/acks=all/latency"
    return {f"{name}/p50_ms": found.p50_ms, f"{name}/p99_ms": found.p99_ms}


def measure_transactions(extent: Extent, trio: Trio) -> dict[str, float]:
    """Measure small transactions of one producer, whose partitions are on all brokers."""
    trio.create({TOPIC: TRANSACTION_PARTITIONS}, configs=TOPIC_CONFIGS)
    rate = librdkafka.commits_per_second(
        trio,
        transactions=extent.transactions,
        warm_up=TRANSACTIONS_WARM_UP,
        records=TRANSACTION_RECORDS,
        record_bytes=TRANSACTION_RECORD_BYTES,
        partitions=TRANSACTION_PARTITIONS,
    )
    trio.delete([TOPIC])
    return {"replicas/transactions/commits_per_s": rate}


def measure_idle(trio: Trio, extent: Extent) -> dict[str, float]:
    """Measure the CPU use of all three brokers together without clients, in percent of one core."""
    trio.create({IDLE_TOPIC: extent.idle_partitions})
    trio.wait_until_whole()
    time.sleep(SETTLE_S)
    cpu_s = trio.cpu_s()
    time.sleep(extent.idle_s)
    percent = (trio.cpu_s() - cpu_s) / extent.idle_s * 100
    return {f"idle/{extent.idle_partitions:,} partitions × 3/percent_of_a_core": percent}
