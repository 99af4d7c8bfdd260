"""A controller at work, ours beside Kafka's: three broker processes of each kind around a real ZooKeeper.

Topics are created on clusters of both kinds that are up at the same time, in turns, and deleted again, until nothing of
them is left in the registry and on disks only what is to be removed. A first, smaller round lets Java compile and does
not count. The large clusters, of 10,000 partitions, come one after the other, since even an idle one would take its
share of the machine.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

import click

from benchmarks.broker import with_bytecode
from benchmarks.controller_cluster import IDS, Trio, Trios, trios
from benchmarks.kafka import OURS, SIDES, Found, note

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
PER_TOPIC = 250
"""Partitions of each topic in a large cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    topics: int
    partitions: int
    rounds: int
    growth: tuple[int, ...]
    """Partitions there are, after each step of growth."""
    fail_overs: int


FULL = Extent(
    topics=1000,
    partitions=2000,
    rounds=3,
    growth=tuple(range(1000, 10_001, 1000)),
    fail_overs=3,
)
QUICK = Extent(topics=100, partitions=200, rounds=1, growth=(500, 1000), fail_overs=1)


def measure(extent: Extent, sides: Sequence[str] = SIDES) -> Found:
    found: Found = {}
    if OURS in sides:
        local_clusters(found, 1 if extent is QUICK else LOCAL_CLUSTER_ROUNDS)
    with trios() as places:
        creation(found, places, extent, sides)
        for side in sides:
            with cluster(places, side) as trio:
                growth(found, side, trio, extent)
    return found


def cluster(places: Trios, side: str) -> AbstractContextManager[Trio]:
    return places.ours() if side == OURS else places.kafka()


def local_clusters(found: Found, rounds: int) -> None:
    """Until every broker's metadata shows all brokers and a controller, in a Python that starts anew."""
    for _ in range(rounds):
        run = subprocess.run(
            [sys.executable, "-c", LOCAL_CLUSTER],
            check=True,
            capture_output=True,
            text=True,
            env=with_bytecode(),
        )
        with_imports, without = map(float, run.stdout.split())
        note(found, OURS, {"start/LocalCluster of 3, with imports/s": with_imports})
        note(found, OURS, {"start/LocalCluster of 3, imports done/s": without})


def creation(found: Found, places: Trios, extent: Extent, sides: Sequence[str]) -> None:
    with ExitStack() as stack:
        clusters = {side: stack.enter_context(cluster(places, side)) for side in sides}
        for side, trio in clusters.items():
            note(found, side, {"start/three processes/s": trio.start()})
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
        for number, name, side in told(turns):
            count, partitions = loads[name]
            if number == 0:
                count, partitions = -(-count // 10), -(-partitions // 10)
            names = [f"round-{number}-{count}x{partitions}-{one}" for one in range(count)]
            created_s = clusters[side].create(dict.fromkeys(names, partitions))
            deleted_s = clusters[side].delete(names)
            if number:
                note(found, side, {f"create/{name}": created_s, f"delete/{name}": deleted_s})


def growth(found: Found, side: str, trio: Trio, extent: Extent) -> None:
    """Topics after topics until there are many partitions; then who is in charge is killed, again and again."""
    trio.start()
    empty_mb = {broker: trio.resident_mb(broker) for broker in IDS}
    took_s = 0.0
    there = 0
    for partitions in told_of(side, "partitions", extent.growth):
        parts = range(0, partitions - there, PER_TOPIC)
        took_s += trio.create({f"grown-to-{partitions}-{one}": PER_TOPIC for one in parts})
        there = partitions
        note(found, side, {f"growth/{partitions}/s": took_s})
    trio.wait_until_whole()
    for broker in IDS:
        more_mb = trio.resident_mb(broker) - empty_mb[broker]
        note(found, side, {f"memory/{there:,} partitions more/mb": more_mb})
    for number in told_of(side, "fail-over", range(extent.fail_overs)):
        if number:
            trio.bring_back()
        note(found, side, {f"failover/{there:,} partitions/s": trio.fail_over()})


def told(turns: Sequence[tuple[int, str, str]]) -> Iterator[tuple[int, str, str]]:
    with click.progressbar(
        turns, file=sys.stderr, item_show_func=lambda turn: f"{turn[1]}, {turn[2]}" if turn else ""
    ) as shown:
        yield from shown


def told_of(side: str, what: str, items: Sequence[int]) -> Iterator[int]:
    with click.progressbar(
        items, file=sys.stderr, item_show_func=lambda item: f"{side}, {what} {item}"
    ) as shown:
        yield from shown
