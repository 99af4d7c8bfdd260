"""Join orders with their payments, which arrive within an hour of the order.

    barnabas up --topic orders:2:1 --topic payments:2:1 --topic paid-orders:2:1 &
    echo '{"order": 1, "item": "letter", "at": "2026-11-17T12:00:00Z"}' | barnabas produce orders
    echo '{"order": 1, "amount": 5, "at": "2026-11-17T12:10:00Z"}' | barnabas produce payments
    python examples/pipelines/join.py

The watermarks and the condition on the times tell Spark how long it must remember an order or a payment.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr, from_json
from pyspark.sql.streaming import StreamingQuery

import barnabas.spark

SERVERS = os.environ.get("BARNABAS_BOOTSTRAP_SERVERS", "localhost:9092")


def parse(records: DataFrame, schema: str) -> DataFrame:
    return records.select(from_json(col("value").cast("string"), schema).alias("row")).select(
        "row.*"
    )


def paid_orders(orders: DataFrame, payments: DataFrame) -> DataFrame:
    ordered = parse(orders, "order long, item string, at timestamp").withWatermark("at", "1 hour")
    paid = parse(payments, "order long, amount int, at timestamp").withWatermark("at", "1 hour")
    return (
        ordered.alias("o")
        .join(
            paid.alias("p"),
            expr("o.order = p.order and p.at between o.at and o.at + interval 1 hour"),
        )
        .selectExpr("o.order", "o.item", "p.amount", "o.at as ordered", "p.at as paid")
    )


def start(
    spark: SparkSession,
    directory: Path,
    servers: str = SERVERS,
    topics: tuple[str, str, str] = ("orders", "payments", "paid-orders"),
    **trigger: Any,
) -> StreamingQuery:
    def stream(topic: str) -> DataFrame:
        return (
            spark.readStream.format("barnabas")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )

    orders, payments, target = topics
    return (
        paid_orders(stream(orders), stream(payments))
        .selectExpr("cast(order as string) as key", "to_json(struct(*)) as value")
        .writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("checkpointLocation", str(directory / "paid-orders"))
        .trigger(**trigger or {"processingTime": "0 seconds"})
        .start()
    )


if __name__ == "__main__":
    start(barnabas.spark.session(), Path("orders")).awaitTermination()
