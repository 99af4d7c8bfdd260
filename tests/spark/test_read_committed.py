"""Reading with kafka.isolation.level=read_committed: no aborted records, nothing after an open transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.offsets import latest_offsets
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.model import TopicPartition
from support.waiting import eventually
from tests.spark.topics import Topics, values_of

COMMITTED = {"kafka.isolation.level": "read_committed", "startingOffsets": "earliest"}
ROUNDS = 6
EXPECTED = sorted([f"c{number}" for number in range(ROUNDS)] * 2 + ["plain"])


@pytest.fixture
def client(topics: Topics) -> Iterator[Cluster]:
    with topics.client() as client:
        yield client


def write_transactions(client: Cluster, topic: str) -> TransactionalProducer:
    """Committed and aborted transactions in turn. The log ends with two markers: of a commit and of an abort."""
    producer = TransactionalProducer(client, f"writer-{topic}")
    for number in range(ROUNDS):
        for mark, end in (("c", producer.commit), ("a", producer.abort)):
            producer.begin()
            for _ in range(2):
                producer.send(topic, f"{mark}{number}".encode(), partition=0)
            producer.send_buffers()
            end()
    return producer


def stable_end(client: Cluster, topic: str) -> int:
    """The last stable offset, when all markers are written."""
    partition = TopicPartition(topic, 0)
    eventually(
        lambda: (
            latest_offsets(client, [partition], committed=True)
            == latest_offsets(client, [partition])
        ),
        "all markers",
    )
    return latest_offsets(client, [partition])[partition]


def test_batch_returns_only_committed_records(topics: Topics, client: Cluster) -> None:
    topic = topics.create()
    topics.write(topic, ["plain"], partition=0)
    producer = write_transactions(client, topic)
    end = stable_end(client, topic)
    reader = topics.reader(subscribe=topic).options(**COMMITTED)
    assert values_of(reader.load()) == EXPECTED
    assert values_of(reader.option("minPartitions", 7).load()) == EXPECTED

    producer.begin()
    producer.send(topic, b"open", partition=0)
    producer.send_buffers()
    topics.write(topic, ["after"], partition=0)
    assert values_of(reader.load()) == EXPECTED
    uncommitted = values_of(topics.reader(subscribe=topic).load())
    assert {"open", "after", "a0"} <= set(uncommitted)
    # A range that ends in markers, or contains nothing else, ends too.
    last = reader.option("startingOffsets", json.dumps({topic: {"0": end - 1}}))
    assert values_of(last.load()) == []
    producer.commit()
    stable_end(client, topic)
    assert values_of(reader.load()) == ["after", "open"]


def test_stream_stops_at_last_stable_offset(
    topics: Topics, client: Cluster, checkpoint: str, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.write(topic, ["plain"], partition=0)
    producer = write_transactions(client, topic)
    end = stable_end(client, topic)
    producer.begin()
    producer.send(topic, b"open", partition=0)
    producer.send_buffers()
    output = str(tmp_path / "output")

    def copy() -> int:
        """Copy what is there, in batches of at most four offsets. Returns the end offset."""
        query = (
            topics.stream(subscribe=topic, maxOffsetsPerTrigger=4, minPartitions=2)
            .options(**COMMITTED)
            .load()
            .select("value")
            .writeStream.format("parquet")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start(output)
        )
        assert query.awaitTermination(120)
        batches = query.recentProgress
        for progress in batches:
            (source,) = progress["sources"]
            starts = json.loads(source["startOffset"]) or {topic: {"0": 0}}
            ends = json.loads(source["endOffset"])
            assert ends[topic]["0"] - starts[topic]["0"] <= 4
            assert json.loads(source["latestOffset"]) == {topic: {"0": end}}
        return int(json.loads(batches[-1]["sources"][0]["endOffset"])[topic]["0"])

    def copied() -> list[str]:
        return values_of(topics.spark.read.parquet(output))

    assert copy() == end
    assert copied() == EXPECTED
    producer.commit()
    end = stable_end(client, topic)
    assert copy() == end
    assert copied() == sorted([*EXPECTED, "open"])


def test_uncommitted_query_continues_as_read_committed(
    topics: Topics, client: Cluster, checkpoint: str
) -> None:
    topic, target = topics.create(), topics.create()
    producer = TransactionalProducer(client, f"writer-{topic}")
    producer.begin()
    producer.send(topic, b"open", partition=0)
    producer.send_buffers()

    def copy(level: str) -> None:
        query = (
            topics.stream(subscribe=topic, startingOffsets="earliest")
            .option("kafka.isolation.level", level)
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
        assert query.exception() is None

    copy("read_uncommitted")
    copy("read_committed")
    producer.commit()
    stable_end(client, topic)
    topics.write(topic, ["later"], partition=0)
    copy("read_committed")
    assert values_of(topics.reader(subscribe=target).load()) == ["later", "open"]
