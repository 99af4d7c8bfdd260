"""Send orders that cannot be processed to a dead-letter topic, and the others to a topic for valid orders.

    barnabas up --topic orders:2:1 --topic valid-orders:2:1 --topic orders-dead:1:1 &
    echo '{"order": 1, "amount": -5}' | barnabas produce orders
    python examples/pipelines/dead_letters.py

A dead letter has the original key and value, and headers with the reason, topic, partition and offset.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json
from pyspark.sql.streaming import StreamingQuery

import barnabas.spark

SERVERS = os.environ.get("BARNABAS_BOOTSTRAP_SERVERS", "localhost:9092")
EXPECTATIONS = {
    "value is JSON": "try_parse_json(cast(value as string)) is not null",
    "order has a number": "parsed.order is not null",
    "amount is positive": "parsed.amount > 0",
}


def split(records: DataFrame, dead_letter_topic: str) -> tuple[DataFrame, DataFrame]:
    parsed = from_json(col("value").cast("string"), "order long, amount int")
    return barnabas.spark.expect(
        records.withColumn("parsed", parsed), EXPECTATIONS, dead_letter_topic=dead_letter_topic
    )


def start(
    spark: SparkSession,
    directory: Path,
    servers: str = SERVERS,
    topics: tuple[str, str, str] = ("orders", "valid-orders", "orders-dead"),
    **trigger: Any,
) -> StreamingQuery:
    source, target, dead_letter_topic = topics

    def write(batch: DataFrame, _number: int) -> None:
        good, dead = split(batch, dead_letter_topic)
        rows = good.selectExpr(
            f"'{target}' as topic", "key", "value", "array() as headers"
        ).unionByName(dead)
        rows.write.format("barnabas").option("kafka.bootstrap.servers", servers).mode(
            "append"
        ).save()

    return (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(**trigger or {"processingTime": "0 seconds"})
        .start()
    )


if __name__ == "__main__":
    start(barnabas.spark.session(), Path("orders")).awaitTermination()
