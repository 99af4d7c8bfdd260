"""The sink with exactlyOnce=true: a read_committed reader finds every row once, whatever Spark repeats."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from barnabas.client.offsets import latest_offsets
from barnabas.model import TopicPartition
from support.waiting import eventually
from tests.spark.topics import Topics, numbered, values_of

FAILS_AT_THE_END = "assert_true(value != 'v0099', 'a bad row') is null"


def committed(topics: Topics, topic: str) -> list[str]:
    """The values for a read_committed reader, once no transaction is open."""
    with topics.client() as client:
        count = len(client.topic(topic).partitions)
        partitions = [TopicPartition(topic, index) for index in range(count)]
        eventually(
            lambda: (
                latest_offsets(client, partitions, committed=True)
                == latest_offsets(client, partitions)
            ),
            "the end of all transactions",
        )
    options = {"kafka.isolation.level": "read_committed"}
    return values_of(topics.reader(subscribe=topic).options(**options).load())


def copy(topics: Topics, source: str, target: str, checkpoint: str) -> StreamingQuery:
    """Copy everything that is there, in batches of at most 15 records."""
    rows = topics.stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=15)
    query = (
        rows.load()
        .select("key", "value")
        .writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", topics.servers)
        .option("topic", target)
        .option("exactlyOnce", "true")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return query


def test_stream_writes_repeated_batch_once(topics: Topics, checkpoint: str) -> None:
    source, target = topics.create(partitions=2), topics.create(partitions=3)
    topics.write(source, numbered(40, "a"), keyed=True)
    assert copy(topics, source, target, checkpoint).exception() is None
    assert committed(topics, target) == numbered(40, "a")
    # As if the driver had been killed after the commit of the sink, before Spark recorded it.
    commits = sorted(Path(checkpoint, "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    commits[-1].with_name(f".{commits[-1].name}.crc").unlink(missing_ok=True)
    topics.write(source, numbered(20, "b"), keyed=True)
    assert copy(topics, source, target, checkpoint).exception() is None
    assert committed(topics, target) == numbered(40, "a") + numbered(20, "b")
    # A checkpoint that was reset in part plans other rows for batches that are written.
    for path in [*Path(checkpoint, "offsets").iterdir(), *Path(checkpoint, "commits").iterdir()]:
        path.unlink()
    with pytest.raises(PySparkException, match="batch 0 is older than batch"):
        copy(topics, source, target, checkpoint)
    assert committed(topics, target) == numbered(40, "a") + numbered(20, "b")


def rows_of(topics: Topics, mark: str = "v") -> DataFrame:
    return topics.spark.createDataFrame(
        [(value,) for value in numbered(100, mark)], "value string"
    ).repartition(4)


def test_failed_job_writes_nothing(topics: Topics) -> None:
    topic = topics.create(partitions=2)
    rows = rows_of(topics).coalesce(1).sortWithinPartitions("value").where(FAILS_AT_THE_END)
    with pytest.raises(PySparkException, match="a bad row"):
        topics.writer(rows, topic=topic, exactlyOnce="true").save()
    assert committed(topics, topic) == []
    topics.writer(rows_of(topics), topic=topic, exactlyOnce="true").save()
    assert committed(topics, topic) == numbered(100)


def test_job_with_transactional_id_is_written_once(topics: Topics) -> None:
    topic = topics.create(partitions=2)
    name = {"topic": topic, "exactlyOnce": "true", "transactionalId": f"load-{topic}"}
    for _ in range(2):
        topics.writer(rows_of(topics), **name).save()
        assert committed(topics, topic) == numbered(100)
    for batch in (1, 2, 1, 2):
        topics.writer(rows_of(topics, f"b{batch}-"), **name, batchId=batch).save()
    expected = [*numbered(100), *numbered(100, "b1-"), *numbered(100, "b2-")]
    assert committed(topics, topic) == sorted(expected)


def test_invalid_use_is_explained(topics: Topics, checkpoint: str) -> None:
    source, target = topics.create(), topics.create()
    options = {"topic": target, "exactlyOnce": "true"}
    with pytest.raises(PySparkException, match="is more than transaction"):
        timeout = {"kafka.transaction.timeout.ms": "1000000"}
        topics.writer(rows_of(topics), **options).options(**timeout).save()
    with pytest.raises(PySparkException, match="transactionalId: is for batch jobs"):
        query = (
            topics.stream(subscribe=source)
            .load()
            .select("value")
            .writeStream.format("barnabas")
            .options(**topics.with_servers(options))
            .option("transactionalId", "name")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
