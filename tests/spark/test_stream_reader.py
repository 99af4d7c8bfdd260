"""The stream reader and the sink of a task, called like Spark calls them: with a real cluster, but without a JVM."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from barnabas import LocalCluster
from barnabas.errors import ConfigError
from barnabas.model import TopicPartition
from barnabas.spark.options import parse_read, parse_write
from barnabas.spark.ranges import DataLoss, OffsetRange
from barnabas.spark.schema import source_schema
from barnabas.spark.source import StreamReader
from barnabas.spark.writer import StreamWriter, TaskCommit, WrittenRange
from tests.spark.topics import Topics, numbered

ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def local_topics(cluster: LocalCluster) -> Topics:
    # These tests do not use Spark.
    return Topics(None, cluster.bootstrap_servers)


class Query:
    """Drives a reader like Spark: each batch starts at the end offsets of the previous one."""

    def __init__(self, topics: Topics, **options: object) -> None:
        named = {"startingOffsets": "earliest", "fetchOffset.numRetries": 1, **options}
        texts = {name: str(value) for name, value in topics.with_servers(named).items()}
        parsed = parse_read(texts, streaming=True)
        self.reader = StreamReader(parsed, source_schema(include_headers=False))

    def begin(self) -> dict[str, dict[str, int]]:
        return self.reader.initialOffset()

    def next_batch(self, start: dict[str, dict[str, int]], limit: object = ALL) -> list[str]:
        end = self.reader.latestOffset(start, limit)
        return self.read(start, end)

    def ranges(
        self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
    ) -> list[OffsetRange]:
        return [partition.value for partition in self.reader.partitions(start, end)]

    def read(self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> list[str]:
        return sorted(
            value.as_py().decode()
            for partition in self.reader.partitions(start, end)
            for batch in self.reader.read(partition)
            for value in batch.column("value")
        )


@pytest.fixture
def query(local_topics: Topics) -> Iterator[Callable[..., Query]]:
    made: list[Query] = []

    def make(**options: object) -> Query:
        made.append(Query(local_topics, **options))
        return made[-1]

    yield make
    for one in made:
        one.reader.stop()


def test_offsets_match_sparks_kafka_source(
    local_topics: Topics, query: Callable[..., Query]
) -> None:
    topic = local_topics.create(partitions=2)
    local_topics.write(topic, numbered(3), partition=1)
    reader = query(subscribe=topic).reader
    start = reader.initialOffset()
    assert start == {topic: {"0": 0, "1": 0}}
    assert reader.latestOffset(start, ALL) == {topic: {"0": 0, "1": 3}}
    assert reader.reportLatestOffset() == {topic: {"0": 0, "1": 3}}


def test_read_committed_is_supported(local_topics: Topics, query: Callable[..., Query]) -> None:
    topic = local_topics.create()
    local_topics.write(topic, numbered(3))
    one = query(subscribe=topic, kafka__isolation__level="read_committed")
    assert one.next_batch(one.begin()) == numbered(3)


def test_replanned_batch_reads_same_records(
    local_topics: Topics, query: Callable[..., Query]
) -> None:
    topic = local_topics.create(partitions=2)
    local_topics.write(topic, numbered(20), keyed=True)
    first = query(subscribe=topic, minPartitions=5)
    start = first.begin()
    end = first.reader.latestOffset(start, ReadMaxRows(8))
    again = query(subscribe=topic, minPartitions=5)
    assert again.ranges(start, end) == first.ranges(start, end)
    assert again.read(start, end) == first.read(start, end)


def test_latest_is_looked_up_once(local_topics: Topics, query: Callable[..., Query]) -> None:
    topic = local_topics.create()
    local_topics.write(topic, numbered(3))
    one = query(subscribe=topic, startingOffsets="latest")
    start = one.begin()
    local_topics.write(topic, numbered(2, "new"))
    end = one.reader.latestOffset(start, ALL)
    local_topics.write(topic, numbered(4, "later"))
    # Spark asks again to plan the first batch.
    assert one.begin() == start
    assert one.read(start, end) == numbered(2, "new")


def test_unfinished_first_batch_from_latest_is_not_repeated(
    local_topics: Topics, query: Callable[..., Query]
) -> None:
    topic = local_topics.create()
    killed = query(subscribe=topic, startingOffsets="latest")
    start = killed.begin()
    local_topics.write(topic, numbered(2))
    end = killed.reader.latestOffset(start, ALL)
    local_topics.write(topic, numbered(4, "later"))
    again = query(subscribe=topic, startingOffsets=json.dumps({topic: {"0": -1}}))
    with pytest.raises(ConfigError, match="startingOffsets: an earlier run ended in its first"):
        again.read(again.begin(), end)
    tolerant = query(subscribe=topic, startingOffsets="latest", failOnDataLoss="false")
    assert tolerant.read(tolerant.begin(), end) == []
    assert tolerant.next_batch(end) == numbered(4, "later")


def test_available_now_ends_at_initial_end_offsets(
    local_topics: Topics, query: Callable[..., Query]
) -> None:
    topic = local_topics.create()
    local_topics.write(topic, numbered(5))
    reader = query(subscribe=topic, maxOffsetsPerTrigger=3).reader
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(3)
    middle = reader.latestOffset(start, limit)
    local_topics.write(topic, numbered(5, "late"))
    end = reader.latestOffset(middle, limit)
    assert (middle, end) == ({topic: {"0": 3}}, {topic: {"0": 5}})
    assert reader.latestOffset(end, limit) == end


def test_min_offsets_apply_together_with_max_offsets(
    local_topics: Topics, query: Callable[..., Query]
) -> None:
    topic = local_topics.create()
    local_topics.write(topic, numbered(1))
    reader = query(
        subscribe=topic, minOffsetsPerTrigger=3, maxOffsetsPerTrigger=4, maxTriggerDelay="1h"
    ).reader
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(start, limit)
    assert first == {topic: {"0": 1}}
    local_topics.write(topic, numbered(2))
    assert reader.latestOffset(first, limit) == first
    local_topics.write(topic, numbered(8))
    assert reader.latestOffset(first, limit) == {topic: {"0": 5}}
    alone = query(subscribe=topic, minOffsetsPerTrigger=3).reader
    assert alone.getDefaultReadLimit() == ReadMinRows(3)
    assert query(subscribe=topic).reader.getDefaultReadLimit() == ALL


def test_new_partition_with_deleted_start_is_data_loss(
    local_topics: Topics, query: Callable[..., Query], caplog: pytest.LogCaptureFixture
) -> None:
    old, new = local_topics.create("east"), local_topics.create("east")
    local_topics.write(new, numbered(5))
    local_topics.delete_records({TopicPartition(new, 0): 3})
    start = {old: {"0": 0}}
    strict = query(subscribe=f"{old},{new}")
    with pytest.raises(DataLoss, match=f"offsets 0 to 2 of {new}-0 are gone: they were deleted be"):
        strict.next_batch(start)
    lenient = query(subscribe=f"{old},{new}", failOnDataLoss=False)
    with caplog.at_level(logging.WARNING, logger="barnabas.spark"):
        assert lenient.next_batch(start) == numbered(5)[3:]
    assert [record.message for record in caplog.records] == [
        f"barnabas: offsets 0 to 2 of {new}-0 are gone: they were deleted before this query found the"
        " new partition; continuing with the remaining records, because failOnDataLoss is false"
    ]


def test_log_ending_before_checkpoint_is_data_loss(
    local_topics: Topics, query: Callable[..., Query]
) -> None:
    topic = local_topics.create()
    local_topics.write(topic, numbered(2))
    with pytest.raises(DataLoss, match=f"offsets 2 to 8 of {topic}-0 are gone: the log ends at 2"):
        query(subscribe=topic).next_batch({topic: {"0": 9}})


def test_recreated_topic_error_names_lost_offsets(
    local_topics: Topics, query: Callable[..., Query]
) -> None:
    topic = local_topics.create()
    local_topics.write(topic, numbered(9))
    one = query(subscribe=topic)
    start = one.begin()
    middle = one.reader.latestOffset(start, ReadMaxRows(4))
    local_topics.recreate(topic)
    local_topics.write(topic, numbered(20))
    with pytest.raises(DataLoss, match=f"offsets 4 to 8 of {topic}-0 are gone: the topic was del"):
        one.next_batch(middle)


def test_topic_recreated_while_query_was_down_is_data_loss(
    local_topics: Topics, query: Callable[..., Query], tmp_path: Path
) -> None:
    topic = local_topics.create()
    local_topics.write(topic, numbered(3))
    ids = tmp_path / "ids"
    first = query(subscribe=topic, topicIdsLocation=ids)
    end = first.reader.latestOffset(first.begin(), ALL)
    assert query(subscribe=topic, topicIdsLocation=ids).next_batch(end) == []
    local_topics.recreate(topic)
    local_topics.write(topic, numbered(9, "new"))
    for _ in range(2):
        again = query(subscribe=topic, topicIdsLocation=ids)
        with pytest.raises(
            DataLoss,
            match=f"offsets of {topic}-0 are gone: the topic was deleted and created again; set failO",
        ):
            again.next_batch(end)
    # A batch that was planned but not read completely is lost as well.
    again = query(subscribe=topic, topicIdsLocation=ids)
    with pytest.raises(DataLoss, match=f"offsets 0 to 2 of {topic}-0 are gone: the topic was del"):
        again.read({topic: {"0": 0}}, end)
    # A new query starts with the existing topic.
    other = query(subscribe=topic, topicIdsLocation=ids)
    assert other.next_batch(other.begin()) == numbered(9, "new")
    assert query(subscribe=topic, topicIdsLocation=ids).next_batch({topic: {"0": 9}}) == []


def test_recreated_topic_is_read_once_from_start_if_loss_is_accepted(
    local_topics: Topics, query: Callable[..., Query], tmp_path: Path
) -> None:
    topic = local_topics.create()
    local_topics.write(topic, numbered(3))
    options = {"subscribe": topic, "topicIdsLocation": tmp_path, "failOnDataLoss": False}
    first = query(**options)
    old = first.reader.latestOffset(first.begin(), ALL)
    local_topics.recreate(topic)
    local_topics.write(topic, numbered(9, "new"))
    end = query(**options).reader.latestOffset(old, ALL)
    assert end == {topic: {"0": 9}}
    # If killed before that batch is complete, the next run plans it again, and the run after that does not.
    assert query(**options).read(old, end) == numbered(9, "new")
    local_topics.write(topic, ["last"])
    assert query(**options).next_batch(end) == ["last"]


def test_unusable_topic_ids_location_is_error(
    local_topics: Topics, query: Callable[..., Query], tmp_path: Path
) -> None:
    topic = local_topics.create()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"topicIdsLocation: .* cannot be used: .*; choose anoth"):
        query(subscribe=topic, topicIdsLocation=tmp_path / "file").begin()
    for content in ("", "[]", '{"id": 3}', '{"id": "x"}', '{"id": "", "before": 1}'):
        (tmp_path / f"{topic}.json").write_text(content)
        with pytest.raises(
            ConfigError, match=r"topicIdsLocation: .* is corrupt; delete it to cont"
        ):
            query(subscribe=topic, topicIdsLocation=tmp_path).next_batch({topic: {"0": 0}})


def test_topic_recreated_between_plan_and_read_is_data_loss(
    local_topics: Topics, query: Callable[..., Query]
) -> None:
    topic = local_topics.create()
    local_topics.write(topic, numbered(3))
    one = query(subscribe=topic)
    start = one.begin()
    end = one.reader.latestOffset(start, ALL)
    planned = one.reader.partitions(start, end)
    local_topics.recreate(topic)
    local_topics.write(topic, numbered(5, "other"))
    with pytest.raises(DataLoss, match=f"offsets 0 to 2 of {topic}-0 are gone"):
        list(one.reader.read(planned[0]))


# ---- the sink ---------------------------------------------------------------------------------------------------


def run_sink_task(topics: Topics, rows: dict[str, list[object]], **options: object) -> TaskCommit:
    texts = {name: str(value) for name, value in topics.with_servers(options).items()}
    batch = pa.RecordBatch.from_pydict(rows)
    return StreamWriter(parse_write(texts), list(rows)).write(iter([batch, batch.slice(0, 0)]))


def test_sink_task_returns_producer_and_ranges(local_topics: Topics) -> None:
    topic = local_topics.create()
    message = run_sink_task(local_topics, {"value": ["a", "b"]}, topic=topic)
    assert message.ranges == (WrittenRange(topic=topic, partition=0, base_offset=0, count=2),)
    assert message.producer_id >= 0
    assert message.producer_epoch >= 0
    again = run_sink_task(local_topics, {"value": ["c"]}, topic=topic)
    assert again.ranges == (WrittenRange(topic=topic, partition=0, base_offset=2, count=1),)
    assert again.producer_id == message.producer_id


def test_many_rows_without_keys_use_all_partitions(local_topics: Topics) -> None:
    topic = local_topics.create(partitions=4)
    message = run_sink_task(local_topics, {"value": ["x" * 100] * 50_000}, topic=topic)
    found = {part.partition: 0 for part in message.ranges}
    for part in message.ranges:
        found[part.partition] += part.count
    assert sorted(found) == [0, 1, 2, 3]
    assert sum(found.values()) == 50_000
    assert len(message.ranges) == 4
    few = run_sink_task(local_topics, {"value": ["x"] * 10}, topic=topic)
    assert len(few.ranges) == 1


def test_empty_input_writes_no_records(local_topics: Topics) -> None:
    topic = local_topics.create()
    assert run_sink_task(local_topics, {"value": []}, topic=topic).ranges == ()


def test_too_large_record_error_names_setting(local_topics: Topics) -> None:
    topic = local_topics.create(max_message_bytes="2000")
    rows: dict[str, list[object]] = {"value": ["x" * 100] * 100}
    with pytest.raises(ConfigError, match=r"kafka.batch.size: .*; lower it, or raise max.message"):
        run_sink_task(local_topics, rows, topic=topic)
    message = run_sink_task(local_topics, rows, topic=topic, kafka__batch__size=1500)
    assert sum(part.count for part in message.ranges) == 100
    large: dict[str, list[object]] = {"value": ["x" * 3000]}
    with pytest.raises(ConfigError, match=rf"max.message.bytes: {topic}-0: .*; a record is larger"):
        run_sink_task(local_topics, large, topic=topic, kafka__batch__size=1500)


# ---- another Python ---------------------------------------------------------------------------------------------


def test_python_without_dependencies_is_reported() -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None; import pyspark_barnabas as found;"
        "print(found.DefaultSource.name()); found.DefaultSource({})"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.stdout == "barnabas\n"
    assert f"Spark runs its workers with {sys.executable}" in run.stderr
    assert "set PYSPARK_PYTHON to the Python that has it" in run.stderr


def test_offsets_are_plain_json(local_topics: Topics, query: Callable[..., Query]) -> None:
    topic = local_topics.create(partitions=11)
    begin = query(subscribe=topic).begin()
    keys = ",".join(f'"{index}":0' for index in range(11))
    assert json.dumps(begin, separators=(",", ":")) == f'{{"{topic}":{{{keys}}}}}'
