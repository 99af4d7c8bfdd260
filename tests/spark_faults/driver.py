"""The killed program: two streams from one topic, to Parquet and to a topic, each with a checkpoint.

    python driver.py <servers> <source topic> <sink topic> <directory>

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

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import barnabas.spark

ROWS_PER_BATCH = 200
ATTEMPTS = 4


def main(servers: str, source: str, sink: str, directory: Path) -> None:
    spark = barnabas.spark.session(
        f"local[2,{ATTEMPTS}]",
        short=True,
        progress=False,
        config={
            "spark.local.dir": str(directory / "scratch"),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
        },
    )
    print_line(f"java {spark.sparkContext._gateway.proc.pid}")

    def records() -> DataFrame:
        return (
            spark.readStream.format("barnabas")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", source)
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

    def to_topic() -> StreamingQuery:
        return (
            records()
            .select("key", "value")
            .writeStream.format("barnabas")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", sink)
            .option("checkpointLocation", str(directory / "topic-checkpoint"))
            .start()
        )

    run_until_stopped({"parquet": to_parquet, "topic": to_topic})
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
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
