"""Count clicks per user and minute. Each finished minute goes to a topic and to Parquet files.

    barnabas up --topic clicks:2:1 --topic clicks-per-minute:2:1 &
    echo '{"user": "frieda", "at": "2026-11-17T12:00:05Z"}' | barnabas produce clicks
    python examples/pipelines/windows.py

A minute is finished when an event arrives that is two minutes later: events may be a minute late. The Parquet files
contain each minute once. The topic contains it at least once: take the last record of each key.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, window
from pyspark.sql.streaming import StreamingQuery

import barnabas.spark

SERVERS = os.environ.get("BARNABAS_BOOTSTRAP_SERVERS", "localhost:9092")


def clicks_per_minute(records: DataFrame) -> DataFrame:
    clicks = records.select(
        from_json(col("value").cast("string"), "user string, at timestamp").alias("click")
    ).select("click.*")
    return (
        clicks.withWatermark("at", "1 minute")
        .groupBy(window("at", "1 minute"), "user")
        .count()
        .selectExpr("window.start as minute", "user", "count as clicks")
    )


def start(
    spark: SparkSession,
    directory: Path,
    servers: str = SERVERS,
    source: str = "clicks",
    target: str = "clicks-per-minute",
    **trigger: Any,
) -> list[StreamingQuery]:
    records = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    minutes = clicks_per_minute(records)
    to_topic = (
        minutes.selectExpr("concat(user, ' ', minute) as key", "to_json(struct(*)) as value")
        .writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("checkpointLocation", str(directory / "to-topic"))
    )
    to_files = (
        minutes.writeStream.format("parquet")
        .option("path", str(directory / "minutes"))
        .option("checkpointLocation", str(directory / "to-files"))
    )
    return [
        query.trigger(**trigger or {"processingTime": "0 seconds"}).start()
        for query in (to_topic, to_files)
    ]


if __name__ == "__main__":
    running = start(barnabas.spark.session(), Path("clicks"))
    running[0].awaitTermination()
