"""Streams read every record once, across restarts of the query and of the broker, and never lose data silently."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql.streaming import StreamingQuery

from barnabas import LocalCluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.producer import Producer
from barnabas.model import TopicPartition
from barnabas.spark.launcher import register_source
from barnabas.spark.run_state import list_runs
from barnabas.spark.stream_reports import report_streams
from support.ports import free_port
from support.waiting import eventually
from tests.spark.followed_stream import follow, wait_until
from tests.spark.topics import Topics, numbered, values_of


def read_available(
    topics: Topics, target: Path, checkpoint: str, **options: object
) -> StreamingQuery:
    query = (
        topics.stream(**{"startingOffsets": "earliest", **options})
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(str(target))
    )
    assert query.awaitTermination(120)
    return query


def test_streams_add_no_variables_to_environment_of_source(
    topics: Topics, tmp_path: Path, checkpoint: str
) -> None:
    """All streams share a HashMap without a lock: two that add a variable at the same time break it."""
    topic = topics.create()
    register_source(topics.spark)
    sources = topics.spark._jsparkSession.sessionState().dataSourceManager()
    environment = sources.lookupDataSource("barnabas").dataSourceCls().envVars()
    before = set(environment.keySet())
    read_available(topics, tmp_path / "out", checkpoint, subscribe=topic)
    assert set(environment.keySet()) == before


def test_each_run_reads_records_since_last_run(
    topics: Topics, tmp_path: Path, checkpoint: str
) -> None:
    topic = topics.create(partitions=2)
    topics.write(topic, numbered(30), keyed=True)
    target = tmp_path / "out"
    group = f"group-of-{topic}"
    options = {"subscribe": topic, "maxOffsetsPerTrigger": 16, "publishOffsetsToGroup": group}
    query = read_available(topics, target, checkpoint, **options)
    assert values_of(topics.spark.read.parquet(str(target))) == numbered(30)
    batches = [progress.numInputRows for progress in query.recentProgress]
    assert all(rows <= 16 for rows in batches)
    assert len([rows for rows in batches if rows]) >= 2
    ends = json.loads(query.recentProgress[-1].sources[0].endOffset)
    assert ends == {
        topic: {str(index): len(found) for index, found in sorted(topics.records(topic).items())}
    }
    with topics.client() as cluster:
        committed = GroupAdmin(cluster).committed_offsets(group)
    assert {str(each.partition): found.offset for each, found in committed.items()} == ends[topic]

    topics.write(topic, numbered(5, "w"))
    read_available(topics, target, checkpoint, subscribe=topic)
    assert values_of(topics.spark.read.parquet(str(target))) == numbered(30) + numbered(5, "w")


def test_stream_from_end_finds_new_topics_and_partitions(topics: Topics, checkpoint: str) -> None:
    mark = f"south-{uuid4().hex[:8]}"
    first = topics.create(f"{mark}-first", mark=False)
    topics.write(first, ["before"])
    with follow(
        topics, checkpoint, subscribePattern=f"^{mark}", startingOffsets="latest"
    ) as stream:
        wait_until(lambda: bool(stream.query.recentProgress) and ["begun"])
        topics.write(first, ["after"])
        assert stream.wait_for(1) == ["after"]
        second = topics.create(f"{mark}-second", mark=False, partitions=2)
        topics.write(second, ["new-0"], partition=0)
        topics.write(second, ["new-1"], partition=1)
        assert stream.wait_for(3) == ["after", "new-0", "new-1"]
        progress = stream.query.lastProgress
        assert progress is not None


def test_streams_from_end_deliver_each_record_once_while_producer_writes(
    topics: Topics, tmp_path: Path
) -> None:
    """Spark asks twice where a new stream starts. Different answers lose records, or fail the stream."""
    topic = topics.create(partitions=2)
    with steady_writes(topics, topic):
        for number in range(3):
            checkpoint = str(tmp_path / f"checkpoint-{number}")
            # The default of startingOffsets is latest.
            with follow(topics, checkpoint, subscribe=topic, startingOffsets=None) as stream:
                wait_for_batch(stream.query, 2)
                rows = topics.spark.table(stream.table).select("partition", "offset").collect()
            for partition in range(2):
                offsets = sorted(row.offset for row in rows if row.partition == partition)
                assert offsets and offsets[0] > 0
                assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


@contextmanager
def steady_writes(topics: Topics, topic: str) -> Iterator[None]:
    """Write about 1,000 records per second to the two partitions."""
    has_ended = threading.Event()

    def write() -> None:
        with topics.client() as cluster, Producer(cluster) as producer:
            while not has_ended.wait(0.01):
                for number in range(10):
                    producer.send(topic, b"v", partition=number % 2)
                producer.flush()

    with ThreadPoolExecutor() as threads:
        writer = threads.submit(write)
        try:
            eventually(lambda: bool(topics.records(topic)), "the first records are written")
            yield
        finally:
            has_ended.set()
    writer.result()


def wait_for_batch(query: StreamingQuery, batch_id: int) -> None:
    """Wait until Spark reports the batch. Raises the failure of the query."""

    def is_reported() -> bool:
        failure = query.exception()
        if failure is not None:
            raise failure
        progress = query.lastProgress
        return progress is not None and progress.batchId >= batch_id

    eventually(is_reported, f"batch {batch_id} of the query", 60)


def test_batch_waits_for_min_offsets(topics: Topics, checkpoint: str) -> None:
    topic = topics.create()
    topics.write(topic, ["first"])
    with follow(
        topics, checkpoint, subscribe=topic, minOffsetsPerTrigger=5, maxTriggerDelay="1h"
    ) as stream:
        # The first batch does not wait: the age of its records is unknown.
        assert stream.wait_for(1) == ["first"]
        topics.write(topic, numbered(4))
        stream.query.processAllAvailable()
        assert stream.values() == ["first"]
        topics.write(topic, ["w"])
        assert stream.wait_for(6) == ["first", *numbered(4), "w"]
        # Rows are visible before Spark reports the batch.
        eventually(lambda: batches(stream.query) >= 2, "Spark reports both batches", 60)
        assert batches(stream.query) == 2


def batches(query: StreamingQuery) -> int:
    """The number of batches with rows."""
    return len([found for found in query.recentProgress if found.numInputRows])


def test_recreated_topic_fails_stream(topics: Topics, checkpoint: str) -> None:
    topic = topics.create()
    topics.write(topic, numbered(3))
    with follow(topics, checkpoint, subscribe=topic) as stream:
        stream.wait_for(3)
        # Between deletion and creation there is no such topic, which would be a different error.
        with stream.pause_sources():
            topics.recreate(topic)
            topics.write(topic, numbered(5, "new"))
        failure = stream.failure()
    assert f"{topic}-0 are gone: the topic was deleted and created again" in failure
    assert "set failOnDataLoss to false" in failure


def test_recreated_topic_is_read_from_start_if_loss_is_accepted(
    topics: Topics, checkpoint: str
) -> None:
    topic = topics.create()
    topics.write(topic, numbered(3))
    with follow(topics, checkpoint, subscribe=topic, failOnDataLoss=False) as stream:
        stream.wait_for(3)
        topics.recreate(topic)
        topics.write(topic, numbered(5, "new"))
        assert stream.wait_for(8) == numbered(5, "new") + numbered(3)


def test_deleted_topic_fails_stream_unless_loss_is_accepted(
    topics: Topics, checkpoint: str, tmp_path: Path
) -> None:
    gone, stays = topics.create(), topics.create()
    topics.write(gone, ["gone"])
    topics.write(stays, ["stays"])
    both = f"{gone},{stays}"
    with follow(topics, checkpoint, subscribe=both) as strict:
        strict.wait_for(2)
        lenient_checkpoint = str(tmp_path / "lenient")
        with follow(topics, lenient_checkpoint, subscribe=both, failOnDataLoss=False) as lenient:
            lenient.wait_for(2)
            topics.delete(gone)
            failure = strict.failure()
            topics.write(stays, ["more"])
            assert lenient.wait_for(3) == ["gone", "more", "stays"]
    assert (
        f"offsets of {gone}-0 are gone: the topic was deleted (UNKNOWN_TOPIC_OR_PARTITION)"
        in failure
    )


def test_records_deleted_while_query_was_down_fail_stream(
    topics: Topics, tmp_path: Path, checkpoint: str
) -> None:
    topic = topics.create()
    topics.write(topic, numbered(3))
    target = tmp_path / "out"
    read_available(topics, target, checkpoint, subscribe=topic)
    topics.write(topic, numbered(6, "w"))
    topics.delete_records({TopicPartition(topic, 0): 7})
    with pytest.raises(Exception, match=f"offsets 3 to 6 of {topic}-0 are gone"):
        read_available(topics, target, checkpoint, subscribe=topic)
    read_available(topics, target, checkpoint, subscribe=topic, failOnDataLoss=False)
    kept = numbered(3) + numbered(6, "w")[4:]
    assert values_of(topics.spark.read.parquet(str(target))) == kept


def test_longer_recreated_topic_is_detected_after_restart(
    topics: Topics, tmp_path: Path, checkpoint: str
) -> None:
    topic = topics.create()
    topics.write(topic, numbered(3))
    target, ids = tmp_path / "out", f"{checkpoint}/topic-ids"
    read_available(topics, target, checkpoint, subscribe=topic, topicIdsLocation=ids)
    topics.recreate(topic)
    topics.write(topic, numbered(9, "new"))
    with pytest.raises(Exception, match=f"{topic}-0 are gone: the topic was deleted and created"):
        read_available(topics, target, checkpoint, subscribe=topic, topicIdsLocation=ids)
    options = {"subscribe": topic, "topicIdsLocation": ids, "failOnDataLoss": False}
    for _ in range(2):
        read_available(topics, target, checkpoint, **options)
        everything = numbered(9, "new") + numbered(3)
        assert values_of(topics.spark.read.parquet(str(target))) == everything


@pytest.mark.parametrize(("records", "limit"), [(3, 100), (8, 3)])
def test_recreated_topic_is_read_although_first_end_is_the_old_one(
    topics: Topics, tmp_path: Path, checkpoint: str, records: int, limit: int
) -> None:
    topic = topics.create()
    topics.write(topic, numbered(3))
    target = tmp_path / "out"
    options = {
        "subscribe": topic,
        "topicIdsLocation": f"{checkpoint}/topic-ids",
        "failOnDataLoss": False,
        "maxOffsetsPerTrigger": limit,
    }
    read_available(topics, target, checkpoint, **options)
    topics.recreate(topic)
    topics.write(topic, numbered(records, "new"))
    for _ in range(2):
        read_available(topics, target, checkpoint, **options)
        everything = numbered(records, "new") + numbered(3)
        assert values_of(topics.spark.read.parquet(str(target))) == everything


def test_running_and_failed_streams_are_reported(
    topics: Topics, tmp_path: Path, checkpoint: str
) -> None:
    topic = topics.create()
    topics.write(topic, numbered(3))
    report_streams(topics.spark, tmp_path / "streams")

    def reported() -> dict[str, Any]:
        (run,) = list_runs(tmp_path / "streams")
        found: dict[str, Any]
        (found,) = run["streams"]
        return found

    with follow(topics, checkpoint, subscribe=topic) as stream:
        stream.wait_for(3)
        eventually(lambda: reported().get("lag") == 0, "the progress is reported")
        name = reported()["name"]
        assert (name, reported()["state"], reported()["batch"]) == (stream.table, "running", 0)
        topics.delete(topic)
        stream.failure()
        eventually(lambda: reported()["state"] == "failed", "the failure is reported")
        assert topic in reported()["error"]


def test_stream_survives_broker_restart(topics: Topics, tmp_path: Path, checkpoint: str) -> None:
    data = tmp_path / "data"
    port = free_port()
    cluster = LocalCluster(data=data, port=port).start()
    try:
        mine = Topics(topics.spark, cluster.bootstrap_servers)
        topic = mine.create(partitions=2)
        mine.write(topic, numbered(10), keyed=True)
        with follow(mine, checkpoint, subscribe=topic) as stream:
            stream.wait_for(10)
            cluster.stop()
            cluster = LocalCluster(data=data, port=port).start()
            mine.write(topic, numbered(10, "w"), keyed=True)
            assert stream.wait_for(20) == numbered(10) + numbered(10, "w")
    finally:
        cluster.stop()
