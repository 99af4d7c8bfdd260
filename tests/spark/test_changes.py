"""The cluster changes during a query: partitions are added, or a broker is killed. No record is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from barnabas.client.admin import Admin, NewPartitions
from barnabas.client.offsets import latest_offsets
from barnabas.model import TopicPartition
from barnabas.spark import session
from support.broker import BrokerProcess
from support.waiting import eventually
from tests.spark.followed_stream import follow
from tests.spark.topics import Topics, numbered

ROWS = 60_000
ROW_BYTES = 300
"""Bytes per row: all rows together exceed the buffers between two processes."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as running:
        yield running


@pytest.fixture
def own_topics(spark: SparkSession, broker: BrokerProcess) -> Topics:
    return Topics(spark, broker.bootstrap_servers)


def add_partitions(topics: Topics, topic: str, count: int) -> None:
    with topics.client() as cluster:
        (outcome,) = Admin(cluster).create_partitions([NewPartitions(name=topic, count=count)])
    assert outcome.error is None, outcome.error


def test_stream_reads_new_partitions_from_start(own_topics: Topics, checkpoint: str) -> None:
    topic = own_topics.create(partitions=1)
    own_topics.write(topic, ["before"])
    with follow(own_topics, checkpoint, subscribe=topic, startingOffsets="latest") as stream:
        eventually(lambda: bool(stream.query.recentProgress), "the stream has begun", 60)
        own_topics.write(topic, numbered(5, "old"))
        assert stream.wait_for(5) == numbered(5, "old")
        add_partitions(own_topics, topic, 3)
        for partition in range(3):
            own_topics.write(topic, numbered(50, f"p{partition}-"), partition=partition)
        expected = [*numbered(5, "old"), *(v for p in range(3) for v in numbered(50, f"p{p}-"))]
        assert stream.wait_for(len(expected)) == expected
        # The new partitions stay part of the query: later records are read after the first ones.
        own_topics.write(topic, ["last"], partition=2)
        assert stream.wait_for(len(expected) + 1) == sorted([*expected, "last"])


# ---- a broker is killed -----------------------------------------------------------------------------------------


def gated(rows: DataFrame, scratch: Path, *, after: int) -> DataFrame:
    """The rows, but each task stops after its first ones until the gate opens. So it is certainly in the middle."""
    seen, gate = str(scratch / "seen"), str(scratch / "gate")

    def pass_on(found: Iterable[Row]) -> Iterator[Row]:
        import time
        from pathlib import Path

        for index, row in enumerate(found):
            if index == after:
                Path(seen).touch()
                deadline = time.monotonic() + 60
                while not Path(gate).exists():
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
            yield row

    return rows.sparkSession.createDataFrame(rows.rdd.mapPartitions(pass_on), rows.schema)


def count_in(topics: Topics, topic: str) -> int:
    with topics.client() as cluster:
        return sum(latest_offsets(cluster, [TopicPartition(topic, 0)]).values())


def test_batch_write_survives_broker_kill(
    spark: SparkSession, broker: BrokerProcess, own_topics: Topics, tmp_path: Path
) -> None:
    topic = own_topics.create(partitions=1)
    rows = spark.range(0, ROWS, numPartitions=2).selectExpr(f"rpad(id, {ROW_BYTES}, '.') value")
    slow = gated(rows, tmp_path, after=ROWS // 3)
    with ThreadPoolExecutor(1) as pool:
        # Sent in pieces, so that some are in the topic before the task has all its rows.
        writer = own_topics.writer(slow, topic=topic, kafka__buffer__memory=1 << 20)
        job = pool.submit(lambda: session() and writer.save())
        eventually(
            lambda: job.done() or count_in(own_topics, topic) > 0, "the first rows arrived", 60
        )
        assert not job.done(), str(job.exception())
        assert 0 < count_in(own_topics, topic) < ROWS
        broker.kill()
        (tmp_path / "gate").touch()
        broker.start()
        job.result(120)
    (records,) = own_topics.records(topic).values()
    found = Counter(int((record.value or b"").rstrip(b".")) for record in records)
    twice = len(records) - len(found)
    print(f"{len(records):,} records of {ROWS:,} rows; written more than once: {twice:,}")
    assert set(found) == set(range(ROWS))
    # The task did not run again, and within a task the producer is idempotent.
    assert twice == 0


def test_batch_read_survives_broker_kill(
    spark: SparkSession, broker: BrokerProcess, own_topics: Topics, tmp_path: Path
) -> None:
    topic = own_topics.create(partitions=1)
    rows = spark.range(0, ROWS, numPartitions=2).selectExpr(f"rpad(id, {ROW_BYTES}, '.') value")
    own_topics.writer(rows, topic=topic).save()
    read = own_topics.reader(subscribe=topic, kafka__max__partition__fetch__bytes=1 << 17).load()
    slow = gated(read.select("offset", "value"), tmp_path, after=1000)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(slow.collect)
        eventually(lambda: job.done() or (tmp_path / "seen").exists(), "the first rows came", 60)
        assert not job.done(), str(job.exception())
        broker.kill()
        (tmp_path / "gate").touch()
        broker.start()
        found = job.result(120)
    assert [row.offset for row in found] == list(range(ROWS))
    assert sorted(int(row.value.rstrip(b".")) for row in found) == list(range(ROWS))
