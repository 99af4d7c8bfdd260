"""Writing: rows become the records that Kafka's own producer would create."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from barnabas.batch.compression import Compression
from barnabas.client.blocking import now_ms
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.model import TopicPartition
from tests.spark.topics import Topics, numbered, values_of


def test_rows_become_records_with_keys_values_and_headers(topics: Topics) -> None:
    topic = topics.create()
    rows = topics.spark.createDataFrame(
        [("k", "v", [("h", b"x"), ("h", None)]), (None, None, None), ("", "", [])],
        "key string, value string, headers array<struct<key string, value binary>>",
    ).coalesce(1)
    topics.writer(rows, topic=topic).save()
    (records,) = topics.records(topic).values()
    assert [(record.key, record.value, record.headers) for record in records] == [
        (b"k", b"v", (("h", b"x"), ("h", None))),
        (None, None, ()),
        (b"", b"", ()),
    ]


def test_timestamp_column_sets_timestamps(topics: Topics) -> None:
    topic = topics.create()
    rows = topics.spark.sql(
        "select value, timestamp_millis(ms) timestamp from values"
        " ('a', 1600000000123), ('b', 1500000000000), ('c', null), ('d', 0) as t(value, ms)"
    ).coalesce(1)
    began = now_ms()
    topics.writer(rows, topic=topic).save()
    found = {record.value: record.timestamp for record in topics.records(topic)[0]}
    assert began <= found.pop(b"c") <= now_ms()
    assert found == {b"a": 1_600_000_000_123, b"b": 1_500_000_000_000, b"d": 0}
    with pytest.raises(PySparkException, match="column timestamp: a timestamp is before 1970"):
        topics.writer(
            rows.selectExpr("value", "timestamp_millis(-1L) timestamp"), topic=topic
        ).save()


def test_key_partitioning_matches_librdkafka(topics: Topics) -> None:
    ours, theirs = topics.create(partitions=7), topics.create(partitions=7)
    keys = [str(number) * (number % 12) for number in range(500)] + ["ключ", "x" * 300]
    rows = topics.spark.createDataFrame([(key, key) for key in keys], "key string, value string")
    topics.writer(rows, topic=ours).save()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": topics.servers, "partitioner": "murmur2_random"}
    )
    for key in keys:
        producer.produce(theirs, key=key.encode(), value=key.encode())
    assert producer.flush(20) == 0

    def placed(topic: str) -> dict[int, list[bytes]]:
        return {
            partition: sorted(record.value or b"" for record in records)
            for partition, records in topics.records(topic).items()
        }

    # An empty key is a key, but some versions of librdkafka treat it as null.
    mine, other = placed(ours), placed(theirs)
    assert {p: [v for v in found if v] for p, found in mine.items()} == {
        p: [v for v in found if v] for p, found in other.items()
    }


def test_topic_and_partition_columns_are_used(topics: Topics) -> None:
    one, two = topics.create(partitions=3), topics.create(partitions=2)
    rows = topics.spark.createDataFrame(
        [(one, 2, "a"), (two, 1, "b"), (one, 0, "c"), (one, None, "d")],
        "topic string, partition int, value string",
    )
    topics.writer(rows).save()
    first = topics.records(one)
    assert b"a" in [record.value for record in first[2]]
    assert b"c" in [record.value for record in first[0]]
    assert sum(map(len, first.values())) == 3
    assert [record.value for record in topics.records(two)[1]] == [b"b"]


def test_topic_option_overrides_column(topics: Topics) -> None:
    topic = topics.create()
    rows = topics.spark.createDataFrame([("nowhere", "v")], "topic string, value string")
    topics.writer(rows, topic=topic).save()
    assert values_of(topics.reader(subscribe=topic).load()) == ["v"]


def test_many_rows_round_trip_in_every_codec(topics: Topics) -> None:
    topic = topics.create(partitions=2)
    codecs = [codec.name.lower() for codec in Compression]
    for index, codec in enumerate(codecs):
        first = index * 20_000
        rows = topics.spark.range(first, first + 20_000)
        options = {"topic": topic, "kafka__compression__type": codec}
        columns = ("cast(id as string) key", "repeat(id, 20) value")
        topics.writer(rows.selectExpr(*columns), **options).save()
    back = topics.reader(subscribe=topic).load().selectExpr("cast(key as string) k", "value")
    right = back.where("repeat(k, 20) = cast(value as string)").select("k").distinct()
    assert right.count() == back.count() == len(codecs) * 20_000


def test_record_larger_than_batch_size_is_sent_alone(topics: Topics) -> None:
    topic = topics.create()
    rows = topics.spark.range(3).selectExpr("repeat('x', 700000) value").coalesce(1)
    topics.writer(rows, topic=topic).save()
    assert [len(record.value or b"") for record in topics.records(topic)[0]] == [700_000] * 3


def test_stream_write_resumes_from_checkpoint(topics: Topics, checkpoint: str) -> None:
    source, target = topics.create(partitions=2), topics.create(partitions=2)

    def copy() -> None:
        query = (
            topics.stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=15)
            .load()
            .selectExpr("key", "upper(cast(value as string)) value")
            .writeStream.format("barnabas")
            .option("kafka.bootstrap.servers", topics.servers)
            .option("topic", target)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    topics.write(source, numbered(20), keyed=True)
    copy()
    topics.write(source, numbered(5, "w"), keyed=True)
    copy()
    expected = [value.upper() for value in numbered(20) + numbered(5, "w")]
    assert values_of(topics.reader(subscribe=target).load()) == sorted(expected)


def test_update_mode_ends_the_query_with_the_reason(topics: Topics, checkpoint: str) -> None:
    source, target = topics.create(), topics.create()
    query = (
        topics.stream(subscribe=source)
        .load()
        .groupBy("key")
        .count()
        .selectExpr("key", "cast(count as string) value")
        .writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", topics.servers)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .outputMode("update")
        .start()
    )
    with pytest.raises(StreamingQueryException, match="barnabas does not support Update mode"):
        query.awaitTermination(60)


def test_tasks_of_many_micro_batches_share_producer_ids(topics: Topics, checkpoint: str) -> None:
    source, target = topics.create(), topics.create()
    topics.write(source, numbered(10))
    query = (
        topics.stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=1)
        .load()
        .select("value")
        .writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", topics.servers)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert len(query.recentProgress) >= 10
    with topics.client() as cluster:
        partition = TopicPartition(target, 0)
        producers = TransactionAdmin(cluster).describe_producers([partition])[partition]
    # Each of the four Python workers may have one.
    assert len(producers) <= 4


def test_complete_mode_writes_whole_result(topics: Topics, tmp_path: Path) -> None:
    source, target = topics.create(), topics.create()
    topics.write(source, ["a", "b", "a"])
    query = (
        topics.stream(subscribe=source, startingOffsets="earliest")
        .load()
        .groupBy("value")
        .count()
        .selectExpr("value key", "cast(count as string) value")
        .writeStream.format("barnabas")
        .outputMode("complete")
        .option("kafka.bootstrap.servers", topics.servers)
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    counted = {record.key: record.value for record in topics.records(target)[0]}
    assert counted == {b"a": b"2", b"b": b"1"}
