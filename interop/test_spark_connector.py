"""Spark's Kafka connector on our broker, and our source and sink on Apache Kafka: both behave the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession

import barnabas.spark
from interop.harness.jars import SPARK_KAFKA, Jars
from interop.harness.kafka import KafkaBroker
from support.broker import BrokerProcess
from tests.compatibility.raw import Raw

ROWS = 1000
PARTITIONS = 3
CONNECTOR, OURS = FORMATS = ("kafka", "barnabas")
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
Row = tuple[Any, ...]


@pytest.fixture(scope="session")
def spark(kafka_jars: Jars) -> Iterator[SparkSession]:
    jars = ",".join(str(path) for path in kafka_jars.of(SPARK_KAFKA))
    session = barnabas.spark.session(
        "local[2]", progress=False, archive=False, config={"spark.jars": jars}
    )
    yield session
    session.stop()


@pytest.fixture(params=["ours", "kafka"])
def servers(request: pytest.FixtureRequest) -> str:
    """One broker of ours, then one of Kafka."""
    broker: BrokerProcess | KafkaBroker = request.getfixturevalue(request.param)
    return broker.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    name = f"spark-{uuid4().hex[:8]}"
    with Raw(servers) as raw:
        raw.create_topic(name, partitions=PARTITIONS)
    return name


def records(spark: SparkSession) -> DataFrame:
    """Keys in several partitions, some null; values, some null; headers on all."""
    return spark.range(ROWS).selectExpr(
        "if(id % 10 = 0, null, cast(concat('key ', id % 50) as binary)) as key",
        "if(id % 7 = 0, null, cast(concat('value ', id) as binary)) as value",
        "array(struct('id' as key, cast(cast(id as string) as binary) as value)) as headers",
    )


def write_records(spark: SparkSession, form: str, servers: str, topic: str) -> None:
    writer = records(spark).write.format(form).mode("append")
    writer.option("kafka.bootstrap.servers", servers).option("topic", topic).save()


def reading(reader: Any, form: str, servers: str, topic: str) -> DataFrame:
    frame: DataFrame = (
        reader.format(form)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    return frame


def all_of(frame: DataFrame) -> list[Row]:
    """Every column of every row. A null header array equals an empty one."""
    found = [
        (*(row[name] for name in COLUMNS), [tuple(header) for header in row["headers"] or []])
        for row in frame.collect()
    ]
    return sorted(found, key=lambda row: (row[3], row[4]))


def contents(rows: list[Row]) -> list[Row]:
    """The written values, without partition, offset and timestamp."""
    return sorted(((row[0], row[1], row[7]) for row in rows), key=repr)


def places(rows: list[Row]) -> dict[bytes, set[int]]:
    found: dict[bytes, set[int]] = {}
    for row in rows:
        if row[0] is not None:
            found.setdefault(bytes(row[0]), set()).add(row[3])
    return found


@pytest.mark.parametrize("writer", FORMATS)
def test_both_read_same_rows(spark: SparkSession, servers: str, topic: str, writer: str) -> None:
    write_records(spark, writer, servers, topic)
    by_connector = all_of(reading(spark.read, CONNECTOR, servers, topic))
    by_ours = all_of(reading(spark.read, OURS, servers, topic))
    assert by_ours == by_connector
    expected = [
        (row.key, row.value, [tuple(header) for header in row.headers])
        for row in records(spark).collect()
    ]
    assert contents(by_ours) == sorted(expected, key=repr)


def test_both_use_same_partitioner(spark: SparkSession, servers: str, topic: str) -> None:
    for form in FORMATS:
        write_records(spark, form, servers, topic)
    rows = all_of(reading(spark.read, OURS, servers, topic))
    assert len(rows) == 2 * ROWS
    assert {len(partitions) for partitions in places(rows).values()} == {1}


@pytest.mark.parametrize("second", FORMATS)
@pytest.mark.parametrize("first", FORMATS)
def test_checkpoints_are_interchangeable(
    spark: SparkSession, servers: str, topic: str, first: str, second: str, tmp_path: Path
) -> None:
    """Reading and writing: a query switches by changing one word, and no record is repeated or skipped."""
    copy = f"{topic}-copy"
    with Raw(servers) as raw:
        raw.create_topic(copy, partitions=PARTITIONS)
    for form in (first, second):
        write_records(spark, OURS, servers, topic)
        query = (
            reading(spark.readStream, form, servers, topic)
            .select("key", "value", "headers")
            .writeStream.format(form)
            .option("kafka.bootstrap.servers", servers)
            .option("topic", copy)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        original = all_of(reading(spark.read, OURS, servers, topic))
        copied = all_of(reading(spark.read, OURS, servers, copy))
        assert contents(copied) == contents(original)
