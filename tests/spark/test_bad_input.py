"""Errors that can be detected before a job starts are reported before it starts, with the option and the next step."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.errors import PySparkException

from tests.spark.topics import Topics


@contextmanager
def fails_with(message: str) -> Iterator[None]:
    with pytest.raises(Exception) as error:
        yield
    assert message in str(error.value)


def test_unknown_option_is_rejected(topics: Topics) -> None:
    with fails_with("subscrib: there is no such option; did you mean subscribe?"):
        topics.reader(subscrib="x").load()


def test_errors_have_no_stack_frames_of_ours(topics: Topics) -> None:
    for rows in (
        lambda: topics.reader(subscrib="x").load(),
        topics.reader(subscribe="none").load().count,
    ):
        with pytest.raises(PySparkException) as error:
            rows()
        assert str(error.value).count("  File ") == 1


def test_unknown_client_setting_is_rejected(topics: Topics) -> None:
    with fails_with(
        "kafka.fetch.max.byte: Kafka's clients have no such setting; did you mean kafka.f"
    ):
        topics.reader(subscribe="x", kafka__fetch__max__byte=5).load()


def test_invalid_json_is_rejected(topics: Topics) -> None:
    with fails_with('startingOffsets: {"x": is not JSON'):
        topics.reader(subscribe="x", startingOffsets='{"x":').load()


def test_contradicting_options_are_rejected(topics: Topics) -> None:
    with fails_with("subscribePattern: cannot be combined with subscribe; keep one of"):
        topics.reader(subscribe="x", subscribePattern="y").load()


def test_unknown_topic_is_rejected(topics: Topics) -> None:
    known = topics.create("invoices")
    with fails_with(f"subscribe: there is no topic {known[:-1]}; did you mean {known}?"):
        topics.reader(subscribe=known[:-1]).load().count()
    with fails_with("subscribe: there is no topic qqqq; create it: barnabas topics create qqqq"):
        topics.reader(subscribe="qqqq").load().count()


def test_pattern_without_match_is_rejected(topics: Topics) -> None:
    with fails_with("subscribePattern: no topic matches '^qqqq$'; change the pattern"):
        topics.reader(subscribePattern="^qqqq$").load().count()


def test_unknown_partition_is_rejected(topics: Topics) -> None:
    topic = topics.create(partitions=2)
    with fails_with(f"assign: there is no {topic}-2; {topic} has partitions 0 to 1"):
        topics.reader(assign=json.dumps({topic: [0, 2]})).load().count()


def test_out_of_range_offsets_are_rejected(topics: Topics) -> None:
    topic = topics.create()
    topics.write(topic, ["a"])
    where = f"offset 9 of {topic}-0 is out of range; the log has 0 to 1; use an offset in range"
    for option in ("startingOffsets", "endingOffsets"):
        with fails_with(f"{option}: {where}"):
            topics.reader(subscribe=topic, **{option: json.dumps({topic: {"0": 9}})}).load().count()


def test_offsets_missing_partition_are_rejected(topics: Topics) -> None:
    topic = topics.create(partitions=2)
    with fails_with(f"startingOffsets: does not name {topic}-1; name every partition that is read"):
        offsets = json.dumps({topic: {"0": 0}})
        topics.reader(subscribe=topic, startingOffsets=offsets).load().count()


def test_unreachable_broker_is_reported(topics: Topics) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{taken.getsockname()[1]}"
    unreachable = Topics(topics.spark, servers)
    why = f"kafka.bootstrap.servers: no broker reached: {servers} (Connection refused); start a"
    with fails_with(why):
        unreachable.reader(subscribe="x", fetchOffset__numRetries=1).load().count()
    with fails_with(why):
        unreachable.writer(topics.spark.createDataFrame([("v",)], "value string"), topic="x").save()


def test_invalid_stream_is_rejected_before_first_batch(topics: Topics, checkpoint: str) -> None:
    def start(**options: object) -> None:
        query = (
            topics.stream(**options)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    with fails_with("endingOffsets: a stream has no end; remove it"):
        start(subscribe="x", endingOffsets="latest")
    with fails_with("subscribe: there is no topic qqqq; create it"):
        start(subscribe="qqqq")


def test_invalid_schema_is_rejected(topics: Topics) -> None:
    topic = topics.create()
    with fails_with("schema: a topic has no column worth; it has key, value"):
        topics.reader(subscribe=topic).schema("worth binary").load().count()
    with fails_with("schema: column value is binary, not string; read it with this type"):
        topics.reader(subscribe=topic).schema("value string").load().count()


@pytest.mark.parametrize(
    ("row", "schema", "message"),
    [
        ((5,), "value long", "column value: must be binary or string, not bigint; cast it"),
        (
            ("v", 5),
            "value string, key int",
            "column key: must be binary or string, not int; cast it",
        ),
        (("v", "0"), "value string, partition string", "column partition: must be int, not string"),
        (("k",), "key string", "column value: is missing; add it, for example with"),
    ],
)
def test_wrong_column_types_are_rejected(
    topics: Topics, row: tuple[object, ...], schema: str, message: str
) -> None:
    with fails_with(message):
        topics.writer(topics.spark.createDataFrame([row], schema), topic="x").save()


def test_rows_without_topic_are_rejected(topics: Topics) -> None:
    rows = topics.spark.createDataFrame([("v",)], "value string")
    with fails_with("topic: is missing; set the option, or add a column topic"):
        topics.writer(rows).save()
    with fails_with("column topic: a row has no topic; fill the column, or set the option topic"):
        topics.writer(rows.selectExpr("value", "cast(null as string) topic")).save()


def test_writing_to_unknown_topic_is_rejected(topics: Topics) -> None:
    rows = topics.spark.createDataFrame([("v",)], "value string")
    with fails_with("topic: there is no topic qqqq; create it: barnabas topics create qqqq"):
        topics.writer(rows, topic="qqqq").save()
    with fails_with("column topic: there is no topic qqqq; create it"):
        topics.writer(rows.selectExpr("value", "'qqqq' topic")).save()


def test_writing_to_unknown_partition_is_rejected(topics: Topics) -> None:
    topic = topics.create(partitions=2)
    rows = topics.spark.createDataFrame([("v", 2)], "value string, partition int")
    with fails_with(f"column partition: {topic} has no partition 2, only 0 to 1"):
        topics.writer(rows, topic=topic).save()


def test_overwrite_mode_is_rejected(topics: Topics) -> None:
    rows = topics.spark.createDataFrame([("v",)], "value string")
    with fails_with("mode: records cannot be overwritten; use mode('append')"):
        topics.writer(rows, topic=topics.create()).mode("overwrite").save()
