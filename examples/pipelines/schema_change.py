"""Read Avro orders while producers switch to a new schema, and write them as JSON.

    pip install 'barnabas[spark,formats]'
    barnabas up --topic avro-orders:2:1 --topic json-orders:2:1 &
    SCHEMA_REGISTRY=http://localhost:8081 python examples/pipelines/schema_change.py

Old orders have no currency. The schema below gives them a default, so old and new orders have the same columns. Every
record is decoded with the schema that wrote it, which the registry knows by its id, also if that schema is newer.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import barnabas.spark
from barnabas.spark.formats import from_avro

SERVERS = os.environ.get("BARNABAS_BOOTSTRAP_SERVERS", "localhost:9092")
REGISTRY = os.environ.get("SCHEMA_REGISTRY", "http://localhost:8081")
SCHEMA = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "amount", "type": "double"},
    {"name": "currency", "type": "string", "default": "EUR"}]}"""


def decoded(records: DataFrame, registry: str) -> DataFrame:
    order = from_avro("value", schema=SCHEMA, registry=registry)
    return records.select(order.alias("order")).select("order.*")


def start(
    spark: SparkSession,
    directory: Path,
    servers: str = SERVERS,
    registry: str = REGISTRY,
    topics: tuple[str, str] = ("avro-orders", "json-orders"),
    **trigger: Any,
) -> StreamingQuery:
    source, target = topics
    records = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    return (
        decoded(records, registry)
        .selectExpr("cast(id as string) as key", "to_json(struct(*)) as value")
        .writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(**trigger or {"processingTime": "0 seconds"})
        .start()
    )


if __name__ == "__main__":
    start(barnabas.spark.session(), Path("orders")).awaitTermination()
