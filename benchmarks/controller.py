"""Controllers of Barnabas and Kafka: three broker processes of each kind with a real ZooKeeper.

Both clusters run at the same time. Topics are created and deleted on them in turns. A deletion is complete when no
znode is left, and on disk only directories that are marked for removal. A first, smaller round lets Java compile and is
not counted. Then all partitions of a topic are reassigned, and each broker is shut down and started again. The large
clusters, of 10,000 partitions, run one after the other, because an idle cluster uses CPU too.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

import click

from benchmarks.broker import environment_with_bytecode
from benchmarks.controller_cluster import IDS, Trio, TrioFactory, trio_factory
from benchmarks.kafka import OURS, SIDES, Found, add_values

LOCAL_CLUSTER = """
import time
began = time.perf_counter()
from barnabas.cluster.local import LocalCluster
imported = time.perf_counter()
with LocalCluster(brokers=3):
    ready = time.perf_counter()
print(ready - began, ready - imported)
"""
LOCAL_CLUSTER_ROUNDS = 5
PARTITIONS_PER_TOPIC = 250
"""Partitions of each topic in a large cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    topics: int
    partitions: int
    rounds: int
    moved: int
    """Number of partitions that are reassigned, and number of partitions during a controlled shutdown."""
    growth: tuple[int, ...]
    """Number of partitions after each step of growth."""
    fail_overs: int


FULL = Extent(
    topics=1000,
    partitions=2000,
    rounds=3,
    moved=1000,
    growth=tuple(range(1000, 10_001, 1000)),
    fail_overs=3,
)
QUICK = Extent(topics=100, partitions=200, rounds=1, moved=100, growth=(500, 1000), fail_overs=1)


def measure(extent: Extent, sides: Sequence[str] = SIDES) -> Found:
    found: Found = {}
    if OURS in sides:
        measure_local_clusters(found, 1 if extent is QUICK else LOCAL_CLUSTER_ROUNDS)
    with trio_factory() as factory:
        measure_creation(found, factory, extent, sides)
        measure_moves(found, factory, extent, sides)
        for side in sides:
            with new_trio(factory, side) as trio:
                measure_growth(found, side, trio, extent)
    return found


def new_trio(factory: TrioFactory, side: str) -> AbstractContextManager[Trio]:
    return factory.ours() if side == OURS else factory.kafka()


def measure_local_clusters(found: Found, rounds: int) -> None:
    """Measure the start of a LocalCluster in a new Python process, until every broker knows all and a controller."""
    for _ in range(rounds):
        run = subprocess.run(
            [sys.executable, "-c", LOCAL_CLUSTER],
            check=True,
            capture_output=True,
            text=True,
            env=environment_with_bytecode(),
        )
        with_imports, without = map(float, run.stdout.split())
        add_values(found, OURS, {"start/LocalCluster of 3, with imports/s": with_imports})
        add_values(found, OURS, {"start/LocalCluster of 3, imports done/s": without})


def measure_creation(
    found: Found, factory: TrioFactory, extent: Extent, sides: Sequence[str]
) -> None:
    with ExitStack() as stack:
        clusters = {side: stack.enter_context(new_trio(factory, side)) for side in sides}
        for side, trio in clusters.items():
            add_values(found, side, {"start/three processes/s": trio.start()})
        loads = {
            f"{extent.topics:,} topics of 1 × 3/s": (extent.topics, 1),
            f"1 topic of {extent.partitions:,} × 3/s": (1, extent.partitions),
        }
        turns = [
            (number, name, side)
            for number in range(extent.rounds + 1)
            for name in loads
            for side in (sides if number % 2 else reversed(sides))
        ]
        for number, name, side in show_turns(turns):
            count, partitions = loads[name]
            if number == 0:
                count, partitions = -(-count // 10), -(-partitions // 10)
            names = [f"round-{number}-{count}x{partitions}-{one}" for one in range(count)]
            created_s = clusters[side].create(dict.fromkeys(names, partitions))
            deleted_s = clusters[side].delete(names)
            if number:
                add_values(found, side, {f"create/{name}": created_s, f"delete/{name}": deleted_s})


def measure_moves(found: Found, factory: TrioFactory, extent: Extent, sides: Sequence[str]) -> None:
    """Reassign empty partitions of two replicas, and shut down every broker of a cluster with three replicas."""
    with ExitStack() as stack:
        clusters = {side: stack.enter_context(new_trio(factory, side)) for side in sides}
        size = f"{extent.moved:,} partitions"
        for trio in clusters.values():
            trio.start()
            trio.create({"moved": extent.moved}, replicas=2)
            trio.create({"kept": extent.moved})
        turns = [
            (number, name, side)
            for number in range(extent.rounds + 1)
            for name in ("reassign", "controlled shutdown")
            for side in (sides if number % 2 else reversed(sides))
        ]
        for number, name, side in show_turns(turns):
            if name == "reassign":
                assignment = [
                    (IDS[(number + each) % 3], IDS[(number + each + 1) % 3])
                    for each in range(extent.moved)
                ]
                seconds = [clusters[side].reassign("moved", assignment)]
            else:
                seconds = [shut_down_and_start(clusters[side], broker) for broker in IDS]
            for each in seconds if number else ():
                add_values(found, side, {f"{name}/{size}/s": each})


def shut_down_and_start(trio: Trio, broker: int) -> float:
    took_s = trio.shut_down(broker)
    trio.restart_killed()
    return took_s


def measure_growth(found: Found, side: str, trio: Trio, extent: Extent) -> None:
    """Create topics until there are many partitions, then kill the controller several times."""
    trio.start()
    empty_mb = {broker: trio.resident_mb(broker) for broker in IDS}
    took_s = 0.0
    created = 0
    for partitions in show_progress(side, "partitions", extent.growth):
        parts = range(0, partitions - created, PARTITIONS_PER_TOPIC)
        took_s += trio.create(
            {f"grown-to-{partitions}-{one}": PARTITIONS_PER_TOPIC for one in parts}
        )
        created = partitions
        add_values(found, side, {f"growth/{partitions}/s": took_s})
    trio.wait_until_whole()
    for broker in IDS:
        more_mb = trio.resident_mb(broker) - empty_mb[broker]
        add_values(found, side, {f"memory/{created:,} partitions more/mb": more_mb})
    for number in show_progress(side, "fail-over", range(extent.fail_overs)):
        if number:
            trio.restart_killed()
        add_values(found, side, {f"failover/{created:,} partitions/s": trio.fail_over()})


def show_turns(turns: Sequence[tuple[int, str, str]]) -> Iterator[tuple[int, str, str]]:
    with click.progressbar(
        turns, file=sys.stderr, item_show_func=lambda turn: f"{turn[1]}, {turn[2]}" if turn else ""
    ) as shown:
        yield from shown


def show_progress(side: str, what: str, items: Sequence[int]) -> Iterator[int]:
    with click.progressbar(
        items, file=sys.stderr, item_show_func=lambda item: f"{side}, {what} {item}"
    ) as shown:
        yield from shown
