"""Spark in local mode reading topics: complete jobs, from planning to the last row, in a warm session.

Every number has its spread over the rounds, and the share of the CPU that other processes used meanwhile. The jobs use
all cores, so other load distorts the numbers.
"""

from __future__ import annotations

import logging
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from benchmarks.broker import BenchmarkBroker
from benchmarks.frames import FrameDriver
from benchmarks.loads import KB, MB, TOPIC, Load, format_size

MASTER = "local[2]"
PARTITIONS = 2
ROWS_PER_MICRO_BATCH = 1_000
WARM_UP_ROUNDS = 2
"""Rounds that are not counted, in which the JVM compiles."""

TARGETS = {
    "count, 100 B": 1_000_000,
    "count, 1 KB": 450_000,
    "to Parquet, 100 B": 450_000,
    "to Parquet, 1 KB": 180_000,
}
"""Minimum rows per second."""
MICRO_BATCH_MS_MAX = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    rows: dict[int, int]
    rounds: int
    micro_batches: int
    batch_bytes: int = 128 * KB


FULL = Extent(rows={100: 10_000_000, KB: 2_500_000}, rounds=5, micro_batches=60)
QUICK = Extent(rows={100: 2_000_000, KB: 500_000}, rounds=3, micro_batches=20)


@dataclass(slots=True)
class Measurement:
    name: str
    unit: str
    target: str = ""
    values: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    cpu_us_per_row: list[float] = field(default_factory=list)
    """CPU of broker, JVM and Python workers together. Other load on the machine distorts it least."""


class CpuMeter:
    """Context manager that measures wall time, own CPU time, and the CPU share of other processes."""

    def __enter__(self) -> CpuMeter:
        self.began_s = time.perf_counter()
        self.busy_s, self.own_s = busy_s(), own_s()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s = time.perf_counter() - self.began_s
        self.cpu_s = own_s() - self.own_s
        others_s = busy_s() - self.busy_s - self.cpu_s
        self.others = max(0.0, others_s) / self.wall_s / (os.cpu_count() or 1)


def busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0) - getattr(times, "guest", 0))


def own_s() -> float:
    """Return the CPU time of this process and its descendants: broker, JVM, Python workers."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def measure(extent: Extent) -> Iterator[Measurement]:
    from barnabas.spark.launcher import session

    logging.getLogger("barnabas").setLevel(logging.ERROR)
    spark = session(MASTER, progress=False)
    scratch = Path(tempfile.mkdtemp(prefix="barnabas-spark-benchmark-"))
    try:
        for record_bytes, rows in extent.rows.items():
            with BenchmarkBroker() as broker:
                yield from measure_throughput(spark, broker, extent, record_bytes, rows, scratch)
        with BenchmarkBroker() as broker:
            yield measure_micro_batches(spark, broker, extent, scratch)
    finally:
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def measure_throughput(
    spark: Any,
    broker: BenchmarkBroker,
    extent: Extent,
    record_bytes: int,
    rows: int,
    scratch: Path,
) -> Iterator[Measurement]:
    stored = fill_topic(broker, extent, record_bytes, rows)

    def read() -> Any:
        return (
            spark.read.format("barnabas")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("subscribe", TOPIC)
            .load()
        )

    def count() -> None:
        found = read().count()
        if found != stored:
            raise RuntimeError(f"{found} rows were counted, {stored} are there")

    def to_parquet() -> None:
        read().write.mode("overwrite").parquet(str(scratch / "rows"))

    jobs: dict[str, Callable[[], None]] = {"count": count, "to Parquet": to_parquet}
    size = "1 KB" if record_bytes == KB else f"{record_bytes} B"
    found = {}
    for name in jobs:
        full = f"{name}, {size}"
        found[name] = Measurement(full, "rows/s", f"≥{TARGETS[full]:,}")
    for turn in range(WARM_UP_ROUNDS + extent.rounds):
        for name, job in jobs.items():
            with CpuMeter() as machine:
                job()
            if turn >= WARM_UP_ROUNDS:
                found[name].values.append(stored / machine.wall_s)
                found[name].others.append(machine.others)
                found[name].cpu_us_per_row.append(machine.cpu_s / stored * 1e6)
    yield from found.values()


def fill_topic(broker: BenchmarkBroker, extent: Extent, record_bytes: int, rows: int) -> int:
    """Fill the topic with prebuilt batches. Returns the number of rows."""
    load = Load(
        batch_bytes=extent.batch_bytes,
        record_bytes=record_bytes,
        partitions=PARTITIONS,
        total_bytes=rows * record_bytes,
    )
    driver = FrameDriver(broker, broker.create_topic(TOPIC, PARTITIONS), load)
    try:
        driver.produce(load.batches)
        return driver.produced * driver.records_per_batch
    finally:
        driver.close()


def measure_micro_batches(
    spark: Any, broker: BenchmarkBroker, extent: Extent, scratch: Path
) -> Measurement:
    """Measure micro-batches of 1,000 rows. Each starts when the one before is done."""
    broker.create_topic(TOPIC, 1)
    measured = Measurement(
        "micro-batch of 1,000 rows, no-op sink", "ms p50", f"<{MICRO_BATCH_MS_MAX}"
    )
    query = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .start()
    )
    try:
        with Cluster(broker.bootstrap_servers) as cluster, Producer(cluster) as producer:
            for number in range(extent.micro_batches + 5):
                with CpuMeter() as machine:
                    for _ in range(ROWS_PER_MICRO_BATCH):
                        producer.send(TOPIC, b"." * 100)
                    producer.flush()
                    query.processAllAvailable()
                if number >= 5:
                    measured.others.append(machine.others)
        measured.values += [
            float(progress["durationMs"]["triggerExecution"])
            for progress in query.recentProgress
            if progress["numInputRows"] == ROWS_PER_MICRO_BATCH
        ][5:]
    finally:
        query.stop()
    return measured


def table(found: Iterable[Measurement]) -> Iterator[str]:
    yield (
        f"{MASTER:46} {'median':>10}  {'spread':<20} {'target':<11} {'CPU-µs/row':>10}  CPU share of others"
    )
    for measured in found:
        values, others, cpu = measured.values, measured.others, measured.cpu_us_per_row
        spread = f"{min(values):,.0f}–{max(values):,.0f}"
        yield (
            f"{measured.name + ', ' + measured.unit:46} {statistics.median(values):>10,.0f}  "
            f"{spread:<20} {measured.target:<11} {statistics.median(cpu) if cpu else 0:10.2f}  "
            f"{statistics.median(others):.0%} ({min(others):.0%}–{max(others):.0%})"
        )


def describe(extent: Extent) -> str:
    sizes = ", ".join(f"{rows:,} rows of {format_size(size)}" for size, rows in extent.rows.items())
    total = sum(size * rows for size, rows in extent.rows.items()) // MB
    return f"{sizes} ({total} MB) in batches of {format_size(extent.batch_bytes)}, {PARTITIONS} partitions"
