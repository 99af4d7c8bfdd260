"""Run a short Spark session whose classes become the class-data archive.

`barnabas spark --prepare` and `python -m barnabas.spark.training` do so.

The session does what a typical first job does: it reads a Python source, groups, parses JSON, runs a stream and writes
Parquet. It needs no broker: Spark loads the same classes for a small Python source as for topics.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from barnabas.java.find import find_java
from barnabas.spark.arrow_records import arrow_schema
from barnabas.spark.cache import cache_directory
from barnabas.spark.class_archive import archive_build, class_archive
from barnabas.spark.installation import spark_home
from barnabas.spark.launcher import open_session

EXIT_TIMEOUT_S = 300


def train() -> bool:
    """Build the archive. Returns whether it exists afterwards."""
    java = find_java("Spark")
    archive = class_archive(java, spark_home(), cache_directory())
    with archive_build(archive, java) as options:
        if options is None:
            return archive.exists
        spark = open_session(
            java=java,
            master="local[2]",
            settings={"spark.app.name": "barnabas training"},
            java_options=options,
        )
        try:
            run_workload(spark)
        finally:
            stop_and_wait(spark)
    return archive.exists


def run_workload(spark: SparkSession) -> None:
    spark.dataSource.register(TrainingSource)
    rows = spark.read.format("trainer").load()
    rows.selectExpr(
        "*",
        "decode(value, 'UTF-8') value_text",
        "try_parse_json(decode(value, 'UTF-8')) value_json",
    ).createOrReplaceTempView("rows")
    spark.sql("select key, count(*) n from rows group by key order by n limit 10").collect()
    spark.sql(
        "select value_text, value_json:a from rows where timestamp > now() - interval 1 day"
    ).collect()
    with tempfile.TemporaryDirectory() as scratch:
        rows.write.parquet(f"{scratch}/rows")
        spark.read.parquet(f"{scratch}/rows").count()
        stream = spark.readStream.format("trainer").load().groupBy("key").count()
        writer = stream.writeStream.outputMode("complete").format("memory").queryName("counts")
        writer = writer.option("checkpointLocation", f"{scratch}/checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()
    spark.sql("select * from counts").collect()


def stop_and_wait(spark: SparkSession) -> None:
    """Stop Spark and wait until Java has ended: it writes the archive at its exit."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(EXIT_TIMEOUT_S)


class TrainingReader(DataSourceReader, DataSourceStreamReader):  # type: ignore[misc]
    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"at": 0}

    def latestOffset(self, *_: object) -> dict[str, int]:  # noqa: N802
        return {"at": 1}

    def partitions(self, *_: object) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict(
            {"key": [b"k"], "value": [b'{"a": 1}'], "timestamp": [1_700_000_000_000_000]},
            schema=arrow_schema(("key", "value", "timestamp")),
        )


class TrainingSource(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "trainer"

    def schema(self) -> str:
        return "key binary, value binary, timestamp timestamp"

    def reader(self, schema: StructType) -> DataSourceReader:
        return TrainingReader()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return TrainingReader()


if __name__ == "__main__":
    raise SystemExit(0 if train() else 1)
