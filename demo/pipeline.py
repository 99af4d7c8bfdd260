"""The pipeline: a Spark stream that counts letters per person and minute and writes the counts to a topic.

The key of a count is its person and minute. A reader keeps the last count of each key, so the result is exact even if
the sink writes a count again after a failure.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from demo.letters import Key, records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

DEADLINE_SECONDS = 120
BAR_CHARACTERS = 40


def start_counting(
    spark: SparkSession, servers: str, topic: str, counts_topic: str, scratch: Path
) -> StreamingQuery:
    from pyspark.sql import functions as f

    letters = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .select(f.from_json(f.col("value").cast("string"), "to string, at timestamp").alias("l"))
        .select("l.to", "l.at")
    )
    counts = (
        letters.withWatermark("at", "10 minutes")
        .groupBy("to", f.window("at", "1 minute").alias("minute"))
        .count()
        .select("to", f.date_format("minute.start", "HH:mm").alias("minute"), "count")
    )
    rows = counts.select(
        f.concat_ws(" ", "to", "minute").alias("key"),
        f.to_json(f.struct("to", "minute", "count")).alias("value"),
    )
    return (
        rows.writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", counts_topic)
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .outputMode("complete")
        .start()
    )


def wait_for_counts(
    servers: str, counts_topic: str, expected: Counter[Key], query: StreamingQuery
) -> Counter[Key]:
    """Return the counts when they equal `expected`. Exits with an error if they do not in time."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (found := read_counts(servers, counts_topic)) != expected:
        if (failure := query.exception()) is not None:
            raise failure
        if time.monotonic() > deadline:
            sys.exit(f"counts are {found}, expected {expected}. Please report this bug.")
    return found


def read_counts(servers: str, topic: str) -> Counter[Key]:
    """Return the last count of every key."""
    counts = Counter[Key]()
    for record in records(servers, topic):
        row = json.loads(record.value)
        counts[row["to"], row["minute"]] = row["count"]
    return counts


def chart(counts: Counter[Key]) -> list[str]:
    most = max(counts.values(), default=1)
    return [
        f"   {minute}  {to:9} {'█' * max(1, count * BAR_CHARACTERS // most)} {count}"
        for (to, minute), count in sorted(counts.items(), key=lambda row: (row[0][1], row[0][0]))
    ]
