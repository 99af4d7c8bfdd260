"""Spark reads of one topic: with the source of Barnabas, and with Spark's own Kafka connector."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.broker import BenchmarkBroker
from benchmarks.kafka import KAFKA, OURS, SIDES, Found, add_values
from benchmarks.loads import KB, TOPIC
from benchmarks.spark import MASTER, WARM_UP_ROUNDS, Extent, fill_topic
from interop.harness.jars import SPARK_KAFKA, fetch

FORMATS = {OURS: "barnabas", KAFKA: "kafka"}


def measure(extent: Extent) -> Found:
    """Measure rows per second. Both read from a broker of Barnabas, so that only the readers differ."""
    from barnabas.spark.launcher import session

    found: Found = {}
    jars = ",".join(str(path) for path in fetch().of(SPARK_KAFKA))
    spark = session(MASTER, progress=False, archive=False, config={"spark.jars": jars})
    scratch = Path(tempfile.mkdtemp(prefix="barnabas-spark-benchmark-"))
    try:
        for record_bytes, rows in extent.rows.items():
            with BenchmarkBroker() as broker:
                stored = fill_topic(broker, extent, record_bytes, rows)
                compare_readers(found, spark, broker, extent.rounds, record_bytes, stored, scratch)
    finally:
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    return found


def compare_readers(
    found: Found,
    spark: Any,
    broker: BenchmarkBroker,
    rounds: int,
    record_bytes: int,
    stored: int,
    scratch: Path,
) -> None:
    def count(rows: Any) -> None:
        counted = rows.count()
        if counted != stored:
            raise RuntimeError(f"{counted} rows were counted, {stored} are there")

    def to_parquet(rows: Any) -> None:
        rows.write.mode("overwrite").parquet(str(scratch / "rows"))

    jobs: dict[str, Callable[[Any], None]] = {"count": count, "parquet": to_parquet}
    size = "1k" if record_bytes == KB else str(record_bytes)
    for turn in range(WARM_UP_ROUNDS + rounds):
        for name, job in jobs.items():
            for side in SIDES if turn % 2 else reversed(SIDES):
                began = time.perf_counter()
                job(read_topic(spark, FORMATS[side], broker))
                took_s = time.perf_counter() - began
                if turn >= WARM_UP_ROUNDS:
                    add_values(found, side, {f"spark/{name}/{size}/rows_per_s": stored / took_s})


def read_topic(spark: Any, source: str, broker: BenchmarkBroker) -> Any:
    return (
        spark.read.format(source)
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", TOPIC)
        .load()
    )
