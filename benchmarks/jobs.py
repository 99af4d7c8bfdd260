"""Topic jobs: whole commands with the start of Spark and the verification, and a query that filters by offset.

Each command runs once in each round, on the same topics. Rates are records per second of the whole command. Archive and
restore of a few records show how much of it is the start.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.broker import BenchmarkBroker, environment_with_bytecode
from benchmarks.spark import MASTER
from support.command import COMMAND
from support.process import ENVIRONMENT

TINY_TOPIC, COPIED_TOPIC, PROFILED_TOPIC, FILTERED_TOPIC = "few", "events", "many", "filtered"
PARTITIONS = 8
RESIZED_PARTITIONS = 5
VALUE_BYTES = 100
KEYS = 50_000
ARCHIVE_RATE_MIN = 300_000
PROFILE_S_MAX = 60
QUERY_S_MAX = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    copied: int
    profiled: int
    filtered: int
    rounds: int


FULL = Extent(copied=5_000_000, profiled=10_000_000, filtered=2_000_000, rounds=3)
QUICK = Extent(copied=500_000, profiled=1_000_000, filtered=500_000, rounds=1)


@dataclass(slots=True)
class Timing:
    """Times of one job, in seconds. `records` is None for a query: its rate would say nothing."""

    name: str
    target: str
    records: int | None = None
    seconds: list[float] = field(default_factory=list)

    def line(self) -> str:
        middle, low, high = statistics.median(self.seconds), min(self.seconds), max(self.seconds)
        rate = f"{self.records / middle:,.0f}" if self.records else ""
        return f"{self.name:52} {middle:7.2f} {low:6.2f}–{high:<7.2f} {rate:>10}  {self.target}"


def measure(extent: Extent) -> list[Timing]:
    with BenchmarkBroker() as broker:
        counts = {
            TINY_TOPIC: PARTITIONS,
            COPIED_TOPIC: extent.copied,
            PROFILED_TOPIC: extent.profiled,
            FILTERED_TOPIC: extent.filtered,
        }
        fill(broker, counts)
        return [*measure_commands(broker, extent), *measure_query(broker, extent)]


def measure_commands(broker: BenchmarkBroker, extent: Extent) -> Iterator[Timing]:
    rate = f"≥{ARCHIVE_RATE_MIN:,} records/s without the start"
    copies = {
        TINY_TOPIC: (Timing("archive, 8 records", ""), Timing("restore, 8 records", "")),
        COPIED_TOPIC: (
            Timing("archive, 8 partitions", rate, extent.copied),
            Timing("restore, 8 partitions", rate, extent.copied),
        ),
    }
    resize = Timing(f"resize, 8 to {RESIZED_PARTITIONS} partitions", "", extent.copied)
    profile = Timing("profile", f"≤{PROFILE_S_MAX} s for 10,000,000 records", extent.profiled)
    for turn in range(extent.rounds):
        for topic, (archive, restore) in copies.items():
            copy = f"{topic}-restored-{turn}"
            with tempfile.TemporaryDirectory(prefix="barnabas-jobs-benchmark-") as target:
                run(broker, archive, "archive", topic, "--to", target)
                run(broker, restore, "restore", str(Path(target, topic)), "--to", copy)
            broker.delete_topic(copy)
        resized = f"{COPIED_TOPIC}-resized-{turn}"
        count = str(RESIZED_PARTITIONS)
        run(broker, resize, "resize", COPIED_TOPIC, "--partitions", count, "--to", resized)
        broker.delete_topic(resized)
        run(broker, profile, "profile", PROFILED_TOPIC)
    for timings in copies.values():
        yield from timings
    yield from (resize, profile)


def run(broker: BenchmarkBroker, timing: Timing, *arguments: str) -> None:
    """Run `barnabas topics` with these arguments and add its time."""
    command = [*COMMAND, "topics", *arguments, "-b", broker.bootstrap_servers]
    began = time.perf_counter()
    subprocess.run(
        [*command, "--master", MASTER],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**environment_with_bytecode(), **ENVIRONMENT},
    )
    timing.seconds.append(time.perf_counter() - began)


def fill(broker: BenchmarkBroker, topics: dict[str, int]) -> None:
    from barnabas.spark.launcher import session

    spark = session(MASTER, progress=False)
    try:
        for topic, count in topics.items():
            broker.create_topic(topic, PARTITIONS)
            generate(spark, broker, topic, count)
    finally:
        spark.stop()


def generate(spark: Any, broker: BenchmarkBroker, topic: str, count: int) -> None:
    rows = spark.range(0, count, 1, PARTITIONS).selectExpr(
        f"cast(id % {KEYS} as string) key",
        f"rpad(concat(id, ':', repeat(md5(cast(id as string)), 3)), {VALUE_BYTES}, 'x') value",
    )
    written = rows.write.format("barnabas").option("topic", topic)
    written.option("kafka.bootstrap.servers", broker.bootstrap_servers).mode("append").save()


def measure_query(broker: BenchmarkBroker, extent: Extent) -> Iterator[Timing]:
    """Time a query for ten records in a new session, and the same query again."""
    from barnabas.spark.filters import FILTER_PUSHDOWN
    from barnabas.spark.launcher import session

    where = "where partition = 0 and offset < 10"
    first, again = (
        Timing(f"{where}, {name}", f"≤{QUERY_S_MAX} s") for name in ("first query", "again")
    )
    for _ in range(extent.rounds):
        spark = session(MASTER, progress=False, config={FILTER_PUSHDOWN: "true"})
        try:
            for timing in (first, again):
                began = time.perf_counter()
                found = len(select_few(spark, broker, FILTERED_TOPIC).collect())
                timing.seconds.append(time.perf_counter() - began)
                if found != 10:
                    raise RuntimeError(f"{found} rows were found instead of 10")
        finally:
            spark.stop()
    yield from (first, again)


def select_few(spark: Any, broker: BenchmarkBroker, topic: str) -> Any:
    reader = spark.read.format("barnabas").option("subscribe", topic)
    rows = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers).load()
    return rows.where("partition = 0 and offset < 10")


def table(found: list[Timing]) -> Iterator[str]:
    yield f"{MASTER:52} {'seconds':>7} {'spread':<14} {'records/s':>10}  target"
    for timing in found:
        yield timing.line()
