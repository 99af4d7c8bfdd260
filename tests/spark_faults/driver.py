"""The killed program: streams from one topic, to Parquet and to a topic, each with a checkpoint.

    python driver.py <settings as JSON> <directory>

A failed stream is restarted from its checkpoint and reported on a line. After the process was killed, the next one
continues from there. A line on standard input ends it: it then writes the values that Spark finds in the Parquet files,
one per line. It exits when standard input closes.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import barnabas.spark

ROWS_PER_BATCH = 200
ATTEMPTS = 4
PARQUET, TOPIC, EXACTLY_ONCE = "parquet", "topic", "exactly-once"
"""Streams: to Parquet, and to a topic with both guarantees."""


class StreamSettings(Struct, frozen=True, kw_only=True):
    """The streams to run. The last two fields are for a remote master."""

    servers: str
    source: str
    sink: str
    streams: list[str]
    master: str = f"local[2,{ATTEMPTS}]"
    python: str | None = None
    java_options: str = ""


def main(settings: StreamSettings, directory: Path) -> None:
    config = {
        "spark.local.dir": str(directory / "scratch"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    if settings.python is not None:
        config |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": settings.java_options,
            "spark.executor.extraJavaOptions": settings.java_options,
            "spark.executor.memory": "768m",
            # On a slow machine, more kills than Spark's default of 4 may hit the same task.
            "spark.task.maxFailures": "100",
            "spark.ui.enabled": "false",
        }
    spark = barnabas.spark.session(
        settings.master, short=True, progress=False, python=settings.python, config=config
    )
    print_line(f"java {spark.sparkContext._gateway.proc.pid}")

    def records() -> DataFrame:
        return (
            spark.readStream.format("barnabas")
            .option("kafka.bootstrap.servers", settings.servers)
            .option("subscribe", settings.source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", ROWS_PER_BATCH)
            .load()
        )

    def to_parquet() -> StreamingQuery:
        return (
            records()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(directory / "parquet-checkpoint"))
            .start(str(directory / "parquet"))
        )

    def to_topic(exactly_once: str) -> StreamingQuery:
        return (
            records()
            .select("key", "value")
            .writeStream.format("barnabas")
            .option("kafka.bootstrap.servers", settings.servers)
            .option("topic", settings.sink)
            .option("exactlyOnce", exactly_once)
            .option("checkpointLocation", str(directory / "topic-checkpoint"))
            .start()
        )

    known: dict[str, Callable[[], StreamingQuery]] = {
        PARQUET: to_parquet,
        TOPIC: lambda: to_topic("false"),
        EXACTLY_ONCE: lambda: to_topic("true"),
    }
    run_until_stopped({name: known[name] for name in settings.streams})
    if PARQUET in settings.streams:
        write_found(spark, directory)
    spark.stop()


def run_until_stopped(streams: dict[str, Callable[[], StreamingQuery]]) -> None:
    queries = {name: start() for name, start in streams.items()}
    print_line("running")
    while not is_stop_requested():
        for name, query in queries.items():
            if not query.isActive:
                print_line(f"failed {name} {reason(query)}")
                queries[name] = streams[name]()
    for query in queries.values():
        query.stop()


def is_stop_requested() -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], 0.1)
    if not readable:
        return False
    if not sys.stdin.readline():
        os._exit(1)
    return True


def reason(query: StreamingQuery) -> str:
    """The reason of a failure on one line, without the query plan."""
    message = str(query.exception() or "without an error").partition("=== Streaming Query ===")[0]
    return " | ".join(message.split("\n"))[:2000]


def write_found(spark: SparkSession, directory: Path) -> None:
    """Read like a user: Spark's list of committed files applies."""
    rows = spark.read.parquet(str(directory / "parquet")).selectExpr("cast(value as string)")
    content = "".join(f"{row.value}\n" for row in rows.collect())
    (directory / "found.txt").write_text(content)


def print_line(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=StreamSettings), Path(sys.argv[2]))
