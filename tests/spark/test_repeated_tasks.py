"""Several attempts of one task write to the same partition at the same time, as after a lost connection to an executor.
Spark has given up one attempt, which does not know it, and repeats the task."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pyarrow as pa

from barnabas import LocalCluster
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, Consumer
from barnabas.client.offsets import latest_offsets
from barnabas.jobs.errors import OtherWriter
from barnabas.jobs.ordered_copy import CopyTarget, PartitionWriter, new_identity
from barnabas.model import TopicPartition
from barnabas.spark.arrow_records import TYPES
from support.seed import choose_seed
from tests.spark.topics import Topics

ROWS = 60
PARTITIONS = 30
"""Each partition has its own order of steps."""
FAILED_MAX = 100


def test_attempts_of_a_task_append_each_record_once(topics: Topics, cluster: LocalCluster) -> None:
    chance = Random(choose_seed())
    topic = topics.create(partitions=PARTITIONS)
    failed = 0
    with topics.client() as client:
        runs = [
            CopyTarget(
                servers=topics.servers,
                topic=topic,
                partition_count=PARTITIONS,
                identity=new_identity(client),
            )
            for _ in range(2)
        ]
        for number in range(PARTITIONS):
            partition = TopicPartition(topic, number)
            failed += run_attempts(client, partition, runs, chance)
            assert read_values(client, partition) == [b"%d" % each for each in range(ROWS)]
    assert failed, "no attempt came too late"


def run_attempts(
    client: Cluster, partition: TopicPartition, runs: list[CopyTarget], chance: Random
) -> int:
    """Run three attempts in random order until one is complete, and the others are too or have failed.

    Returns how many failed. Attempts of another run, with another producer id, begin when the partition has records
    (see docs/topic-jobs.md).
    """
    first = attempt(client, partition, runs[0], chance)
    next(first)
    next(first)
    others = [attempt(client, partition, chance.choice(runs), chance) for _ in range(2)]
    attempts = [first, *others]
    failed, is_complete = 0, False
    while attempts:
        chosen = chance.choice(attempts)
        try:
            next(chosen)
        except StopIteration:
            attempts.remove(chosen)
            is_complete = True
        except OtherWriter:
            failed += 1
            assert failed < FAILED_MAX
            attempts.remove(chosen)
            if not is_complete:
                attempts.append(attempt(client, partition, chance.choice(runs), chance))
    return failed


def attempt(
    client: Cluster, partition: TopicPartition, target: CopyTarget, chance: Random
) -> Iterator[None]:
    """An attempt that stops after it has looked up its position, and after each batch."""
    writer = PartitionWriter(client, partition, target)
    yield
    rows = sample_rows()
    while rows.num_rows:
        count = chance.randint(1, 12)
        writer.add(rows.slice(0, count))
        writer.send()
        rows = rows.slice(count)
        yield


def sample_rows() -> pa.RecordBatch:
    values = [b"%d" % number for number in range(ROWS)]
    columns = {
        "key": pa.array(values),
        "value": pa.array(values),
        "headers": pa.nulls(ROWS, TYPES["headers"]),
        "timestamp": pa.array(range(ROWS), TYPES["timestamp"]),
    }
    return pa.RecordBatch.from_pydict(columns)


def read_values(client: Cluster, partition: TopicPartition) -> list[bytes | None]:
    end = latest_offsets(client, [partition])[partition]
    consumer = Consumer(client, {partition: Beginning()})
    found: list[bytes | None] = []
    while len(found) < end:
        found += [record.value for record in consumer.poll(1.0)]
    return found
