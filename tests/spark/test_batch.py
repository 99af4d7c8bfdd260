"""Batch reads return exactly the requested records, unchanged."""

from __future__ import annotations

import json

import pytest

from barnabas.batch.compression import Compression
from barnabas.model import TopicPartition
from tests.spark.topics import Topics, numbered, values_of


def test_batch_reads_every_codec(topics: Topics) -> None:
    topic = topics.create(partitions=3)
    for codec in Compression:
        topics.write(
            topic,
            numbered(40, codec.name),
            keyed=True,
            timestamps=range(1_700_000_000_000, 1_700_000_000_040),
            compression=codec,
        )
    rows = topics.reader(subscribe=topic).load().collect()
    expected = {
        (index, record.offset): record
        for index, records in topics.records(topic).items()
        for record in records
    }
    assert len(rows) == len(expected) == 200
    for row in rows:
        record = expected[row.partition, row.offset]
        assert (bytes(row.key), bytes(row.value), row.topic) == (record.key, record.value, topic)
        assert round(row.timestamp.timestamp() * 1000) == record.timestamp
        assert row.timestampType == 0


def test_null_fields_and_optional_headers(
    topics: Topics,
) -> None:
    topic = topics.create()
    topics.write(topic, ["one"], headers=[("a", b"1"), ("a", None), ("", b"")])
    topics.write(topic, ["two"])
    rows = topics.reader(subscribe=topic, includeHeaders=True).load().orderBy("offset").collect()
    first = [(header.key, header.value and bytes(header.value)) for header in rows[0].headers]
    assert first == [("a", b"1"), ("a", None), ("", bytearray())]
    assert rows[0].key is None
    assert not rows[1].headers
    assert "headers" not in topics.reader(subscribe=topic).load().columns


def test_narrower_schema_keeps_its_column_order(topics: Topics) -> None:
    topic = topics.create()
    topics.write(topic, ["a", "b"])
    rows = topics.reader(subscribe=topic).schema("OFFSET long, value binary NOT NULL").load()
    assert rows.columns == ["OFFSET", "value"]
    assert [(row.OFFSET, bytes(row.value)) for row in rows.orderBy("OFFSET").collect()] == [
        (0, b"a"),
        (1, b"b"),
    ]


def test_topics_by_name_pattern_and_assignment(topics: Topics) -> None:
    one, two = topics.create("north", partitions=2), topics.create("north", partitions=1)
    topics.write(one, ["one-0"], partition=0)
    topics.write(one, ["one-1"], partition=1)
    topics.write(two, ["two-0"])
    everything = ["one-0", "one-1", "two-0"]
    assert values_of(topics.reader(subscribe=f"{one}, {two}").load()) == everything
    assert values_of(topics.reader(subscribePattern="^north-").load()) == everything
    assigned = json.dumps({one: [1], two: [0]})
    assert values_of(topics.reader(assign=assigned).load()) == ["one-1", "two-0"]


def test_view_is_supported_and_table_is_rejected(topics: Topics) -> None:
    topic = topics.create()
    topics.write(topic, ["a", "b"])
    options = f"options ('kafka.bootstrap.servers' '{topics.servers}', subscribe '{topic}')"
    topics.spark.sql(f"create temporary view orders using barnabas {options}")
    assert topics.spark.sql("select count(*) n from orders").first().n == 2
    topics.spark.sql("drop view orders")
    with pytest.raises(
        Exception, match="create table: Spark does not pass the options of a table to"
    ):
        topics.spark.sql(f"create table kept using barnabas {options}")


def test_empty_topic_has_no_rows(topics: Topics) -> None:
    assert topics.reader(subscribe=topics.create(partitions=2)).load().count() == 0


def test_starting_and_ending_offsets(topics: Topics) -> None:
    topic = topics.create(partitions=2)
    topics.write(topic, numbered(10, "a"), partition=0)
    topics.write(topic, numbered(10, "b"), partition=1)

    def read(start: dict[str, int] | str, end: dict[str, int] | str) -> list[str]:
        bounds = [
            bound if isinstance(bound, str) else json.dumps({topic: bound})
            for bound in (start, end)
        ]
        options = {"startingOffsets": bounds[0], "endingOffsets": bounds[1]}
        return values_of(topics.reader(subscribe=topic, **options).load())

    assert read({"0": 8, "1": -2}, {"0": -1, "1": 1}) == ["a0008", "a0009", "b0000"]
    assert read("earliest", {"0": 1, "1": 0}) == ["a0000"]
    assert read({"0": 10, "1": 9}, "latest") == ["b0009"]


def test_starting_and_ending_timestamps(topics: Topics) -> None:
    topic = topics.create(partitions=2)
    topics.write(topic, numbered(5, "a"), partition=0, timestamps=range(1000, 1500, 100))
    topics.write(topic, numbered(2, "b"), partition=1, timestamps=[1000, 1100])

    def read(**options: object) -> list[str]:
        return values_of(topics.reader(subscribe=topic, **options).load())

    late = {"startingTimestamp": 1250, "startingOffsetsByTimestampStrategy": "latest"}
    assert read(**late) == ["a0003", "a0004"]
    assert read(startingTimestamp=1100, endingTimestamp=1200) == ["a0001", "b0001"]
    by_partition = json.dumps({topic: {"0": 1400, "1": 1001}})
    assert read(startingOffsetsByTimestamp=by_partition) == ["a0004", "b0001"]
    assert read(endingOffsetsByTimestamp=by_partition) == [*numbered(4, "a"), "b0000"]
    with pytest.raises(Exception, match=r"startingTimestamp: .*-1 has no record at or after 1250"):
        read(startingTimestamp=1250)


def test_long_ranges_are_split_into_tasks(topics: Topics) -> None:
    topic = topics.create()
    topics.write(topic, numbered(100))
    whole = topics.reader(subscribe=topic).load()
    assert whole.rdd.getNumPartitions() == 1
    parted = topics.reader(subscribe=topic, minPartitions=4).load()
    assert parted.rdd.getNumPartitions() == 4
    assert values_of(parted) == numbered(100)
    limited = topics.reader(subscribe=topic, maxRecordsPerPartition=40).load()
    assert limited.rdd.getNumPartitions() == 3
    assert values_of(limited) == numbered(100)


def test_deleted_records_fail_or_are_skipped(topics: Topics) -> None:
    topic = topics.create()
    topics.write(topic, numbered(10))
    topics.delete_records({TopicPartition(topic, 0): 6})
    assert values_of(topics.reader(subscribe=topic).load()) == numbered(10)[6:]
    start = json.dumps({topic: {"0": 2}})
    with pytest.raises(Exception, match=rf"startingOffsets: offset 2 of {topic}-0 is out of range"):
        topics.reader(subscribe=topic, startingOffsets=start).load().count()
    lenient = topics.reader(subscribe=topic, startingOffsets=start, failOnDataLoss=False)
    assert values_of(lenient.load()) == numbered(10)[6:]
