"""Rates of the Spark sink with at-least-once and exactly-once delivery, in turns.

A batch job writes generated rows to a topic. A stream copies a topic in micro-batches, each of which is a transaction.
"""

from __future__ import annotations

import itertools
import logging
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from barnabas.spark.launcher import session
from benchmarks.broker import BenchmarkBroker
from benchmarks.loads import TOPIC
from benchmarks.spark import (
    MASTER,
    PARTITIONS,
    WARM_UP_ROUNDS,
    CpuMeter,
    Extent,
    Measurement,
    fill_topic,
)

RECORD_BYTES = 100
MICRO_BATCHES = 5
RATIO_TARGET = 0.7
MODES = {"at least once": "false", "exactly once": "true"}
"""Value of the option exactlyOnce, by mode."""


def measure(extent: Extent) -> Iterator[Measurement]:
    logging.getLogger("barnabas").setLevel(logging.ERROR)
    spark = session(MASTER, progress=False)
    scratch = Path(tempfile.mkdtemp(prefix="barnabas-sink-benchmark-"))
    try:
        with BenchmarkBroker() as broker:
            sinks = Sinks(spark, broker, scratch)
            rows = extent.rows[RECORD_BYTES] // 5
            yield from measure_job("write", sinks.write, rows, extent.rounds)
            stored = fill_topic(broker, extent, RECORD_BYTES, rows)
            sinks.rows_per_trigger = -(-stored // MICRO_BATCHES)
            yield from measure_job("copy", sinks.copy, stored, extent.rounds)
    finally:
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def measure_job(
    name: str, job: Callable[[str, int], None], rows: int, rounds: int
) -> Iterator[Measurement]:
    """Run a job in both modes, in turns."""
    found = {mode: Measurement(f"{name}, {mode}", "rows/s") for mode in MODES}
    for turn in range(WARM_UP_ROUNDS + rounds):
        for mode, measured in found.items():
            with CpuMeter() as machine:
                job(MODES[mode], rows)
            if turn >= WARM_UP_ROUNDS:
                measured.values.append(rows / machine.wall_s)
                measured.others.append(machine.others)
                measured.cpu_us_per_row.append(machine.cpu_s / rows * 1e6)
    base, exact = (statistics.median(measured.values) for measured in found.values())
    for measured in found.values():
        yield measured
    ratio = Measurement(f"{name}, ratio in percent", "%", f"≥{RATIO_TARGET:.0%}")
    ratio.values.append(100 * exact / base)
    ratio.others.append(0.0)
    yield ratio


class Sinks:
    """The two jobs. Each writes to a new topic."""

    def __init__(self, spark: Any, broker: BenchmarkBroker, scratch: Path) -> None:
        self.spark = spark
        self.broker = broker
        self.scratch = scratch
        self.numbers = itertools.count()
        self.rows_per_trigger = 0

    def write(self, exactly_once: str, rows: int) -> None:
        generated = self.spark.range(0, rows, 1, PARTITIONS).selectExpr(
            "cast(id as string) as key", f"repeat('x', {RECORD_BYTES}) as value"
        )
        self.options(generated.write, exactly_once).mode("append").save()

    def copy(self, exactly_once: str, rows: int) -> None:
        copied = (
            self.spark.readStream.format("barnabas")
            .option("kafka.bootstrap.servers", self.broker.bootstrap_servers)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(self.rows_per_trigger))
            .load()
            .select("key", "value")
        )
        checkpoint = self.scratch / f"checkpoint-{next(self.numbers)}"
        query = (
            self.options(copied.writeStream, exactly_once)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        batches = [each for each in query.recentProgress if each["numInputRows"]]
        if sum(each["numInputRows"] for each in batches) != rows:
            raise RuntimeError(f"{batches} do not have {rows} rows")

    def options(self, writer: Any, exactly_once: str) -> Any:
        topic = f"sink-{next(self.numbers)}"
        self.broker.create_topic(topic, PARTITIONS)
        return (
            writer.format("barnabas")
            .option("kafka.bootstrap.servers", self.broker.bootstrap_servers)
            .option("topic", topic)
            .option("exactlyOnce", exactly_once)
        )
