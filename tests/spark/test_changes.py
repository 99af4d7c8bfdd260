"""The cluster changes in the middle of a query: partitions are added, a broker is killed. Nothing is lost."""

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
from tests.spark.following import following
from tests.spark.topics import Topics, numbered

ROWS = 60_000
FILLING = 300
"""Bytes of a row: all rows together are more than lies in the buffers between two processes."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as running:
        yield running


@pytest.fixture
def mine(spark: SparkSession, broker: BrokerProcess) -> Topics:
    return Topics(spark, broker.bootstrap_servers)


def add_partitions(topics: Topics, topic: str, count: int) -> None:
    with topics.client() as cluster:
        (outcome,) = Admin(cluster).create_partitions([NewPartitions(name=topic, count=count)])
    assert outcome.error is None, outcome.error


def test_partitions_that_come_to_a_topic_are_read_from_their_beginning(
    mine: Topics, checkpoint: str
) -> None:
    topic = mine.create(partitions=1)
    mine.write(topic, ["before"])
    with following(mine, checkpoint, subscribe=topic, startingOffsets="latest") as stream:
        eventually(lambda: bool(stream.query.recentProgress), "the stream has begun", 60)
        mine.write(topic, numbered(5, "old"))
        assert stream.wait_for(5) == numbered(5, "old")
        add_partitions(mine, topic, 3)
        for partition in range(3):
            mine.write(topic, numbered(50, f"p{partition}-"), partition=partition)
        expected = [*numbered(5, "old"), *(v for p in range(3) for v in numbered(50, f"p{p}-"))]
        assert stream.wait_for(len(expected)) == expected
        # And they stay with the query: what comes later is read behind what came first.
        mine.write(topic, ["last"], partition=2)
        assert stream.wait_for(len(expected) + 1) == sorted([*expected, "last"])


# ---- a broker is killed -----------------------------------------------------------------------------------------


def gated(rows: DataFrame, scratch: Path, *, behind: int) -> DataFrame:
    """The rows, but each task stops behind its first ones until the gate is open: it is in its middle for certain."""
    seen, gate = str(scratch / "seen"), str(scratch / "gate")

    def pass_on(found: Iterable[Row]) -> Iterator[Row]:
        import time
        from pathlib import Path

        for index, row in enumerate(found):
            if index == behind:
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


def test_a_broker_killed_in_the_middle_of_a_batch_that_is_written(
    spark: SparkSession, broker: BrokerProcess, mine: Topics, tmp_path: Path
) -> None:
    topic = mine.create(partitions=1)
    rows = spark.range(0, ROWS, numPartitions=2).selectExpr(f"rpad(id, {FILLING}, '.') value")
    slow = gated(rows, tmp_path, behind=ROWS // 3)
    with ThreadPoolExecutor(1) as pool:
        # Sent in pieces, so that some are in the topic before the task has all of its rows.
        writer = mine.writer(slow, topic=topic, kafka__buffer__memory=1 << 20)
        job = pool.submit(lambda: session() and writer.save())
        eventually(lambda: job.done() or count_in(mine, topic) > 0, "the first rows are there", 60)
        assert not job.done(), str(job.exception())
        assert 0 < count_in(mine, topic) < ROWS
        broker.kill()
        (tmp_path / "gate").touch()
        broker.start()
        job.result(120)
    (records,) = mine.records(topic).values()
    found = Counter(int((record.value or b"").rstrip(b".")) for record in records)
    twice = len(records) - len(found)
    print(f"{len(records):,} records of {ROWS:,} rows; written more than once: {twice:,}")
    assert set(found) == set(range(ROWS))
    # The task did not run again, and within a task the producer is idempotent.
    assert twice == 0


def test_a_broker_killed_in_the_middle_of_a_batch_that_is_read(
    spark: SparkSession, broker: BrokerProcess, mine: Topics, tmp_path: Path
) -> None:
    topic = mine.create(partitions=1)
    rows = spark.range(0, ROWS, numPartitions=2).selectExpr(f"rpad(id, {FILLING}, '.') value")
    mine.writer(rows, topic=topic).save()
    read = mine.reader(subscribe=topic, kafka__max__partition__fetch__bytes=1 << 17).load()
    slow = gated(read.select("offset", "value"), tmp_path, behind=1000)
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
