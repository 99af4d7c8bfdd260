"""Keep a table of customers up to date from a topic of changes: inserts, updates and deletions.

    barnabas up --topic customers:2:1 &
    printf '7\t{"name": "Klamm", "city": "Castle"}\n' | barnabas produce --key-separator '\t' customers
    python examples/pipelines/upserts.py

The key is the customer's number, and a null value deletes the customer. Parquet files cannot be changed, so each batch
writes a new version of the table and then makes the link `current` point to it. A batch that runs again after a crash
writes the same version again. For large tables use Delta or Iceberg and MERGE instead.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming import StreamingQuery

import barnabas.spark

SERVERS = os.environ.get("BARNABAS_BOOTSTRAP_SERVERS", "localhost:9092")
SCHEMA = "id long, name string, city string"


def last_changes(records: DataFrame) -> DataFrame:
    """Return the last change of each customer. All records of a key are in one partition, in order."""
    last = records.groupBy("key").agg(expr("max(struct(offset, value)) as last"))
    return last.selectExpr(
        "cast(cast(key as string) as long) as id",
        "from_json(cast(last.value as string), 'name string, city string') as customer",
    )


def merged(table: DataFrame, changes: DataFrame) -> DataFrame:
    unchanged = table.join(changes, "id", "left_anti")
    return unchanged.unionByName(changes.where("customer is not null").select("id", "customer.*"))


def merge_batch(directory: Path, records: DataFrame, batch: int) -> None:
    spark = records.sparkSession
    before = directory / f"version-{batch - 1}"
    table = (
        spark.read.schema(SCHEMA).parquet(str(before))
        if batch
        else spark.createDataFrame([], SCHEMA)
    )
    after = directory / f"version-{batch}"
    merged(table, last_changes(records)).write.mode("overwrite").parquet(str(after))
    link = directory / "new"
    link.unlink(missing_ok=True)
    link.symlink_to(after.name)
    link.replace(directory / "current")


def start(
    spark: SparkSession,
    directory: Path,
    servers: str = SERVERS,
    source: str = "customers",
    **trigger: Any,
) -> StreamingQuery:
    return (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.foreachBatch(partial(merge_batch, directory))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(**trigger or {"processingTime": "0 seconds"})
        .start()
    )


if __name__ == "__main__":
    start(barnabas.spark.session(), Path("customers")).awaitTermination()
