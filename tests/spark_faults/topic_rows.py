"""Complete records of the topics and archives under test: number, key, headers and timestamp."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from barnabas.client.blocking import Deadline
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, Consumer
from barnabas.client.offsets import latest_offsets
from barnabas.client.producer import Producer
from barnabas.model import TopicPartition

KEYS = 1000
VALUE = b"x" * 100
CHUNK = 100
READ_S = 60.0
DAY_BEFORE_MS = int((datetime.now(UTC) - timedelta(days=1)).timestamp() * 1000)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Headers = tuple[tuple[str, bytes | None], ...]


class Row(NamedTuple):
    """A record. Its value is VALUE and its number."""

    number: int
    key: bytes | None
    headers: Headers
    timestamp: int


Rows = dict[int, list[Row]]
"""The records of a topic by partition, in order."""


def new_row(number: int) -> Row:
    headers: Headers = (("number", b"%d" % number), ("empty", None)) if number % 3 == 0 else ()
    return Row(number, b"%d" % (number % KEYS), headers, DAY_BEFORE_MS + number)


def write_rows(
    servers: str, topic: str, numbers: Iterable[int], *, chunk_every_s: float = 0.0
) -> None:
    """Write rows in chunks, not more than one in each interval."""
    with Cluster(servers) as cluster, Producer(cluster) as producer:
        for count, row in enumerate(map(new_row, numbers), 1):
            value = VALUE + b"%d" % row.number
            producer.send(topic, value, key=row.key, headers=row.headers, timestamp=row.timestamp)
            if count % CHUNK == 0:
                producer.flush()
                time.sleep(chunk_every_s)


def count_rows(cluster: Cluster, topic: str) -> int:
    return sum(latest_offsets(cluster, places_of(cluster, topic)).values())


def read_rows(servers: str, topic: str) -> Rows:
    """Return all records of a topic that has lost none."""
    with Cluster(servers) as cluster:
        places = places_of(cluster, topic)
        found: Rows = {each.partition: [] for each in places}
        left = count_rows(cluster, topic)
        consumer = Consumer(cluster, dict.fromkeys(places, Beginning()))
        deadline = Deadline(READ_S)
        while left:
            assert not deadline.passed, f"{left} records of {topic} are missing"
            for record in consumer.poll(1.0):
                row = row_of(record.value, record.key, record.headers, record.timestamp)
                found[record.partition].append(row)
                left -= 1
    return found


def archived_rows(root: Path) -> Rows:
    found: dict[int, list[tuple[int, Row]]] = {}
    for path in root.rglob("*.parquet"):
        partition = int(path.parent.name.partition("=")[2])
        found.setdefault(partition, []).extend(rows_of_file(path))
    return {partition: [row for _, row in sorted(rows)] for partition, rows in found.items()}


def rows_of_file(path: Path) -> Iterator[tuple[int, Row]]:
    columns = ["offset", "value", "key", "headers", "timestamp"]
    for each in pq.ParquetFile(path).read(columns).to_pylist():
        headers = tuple((header["key"], header["value"]) for header in each["headers"] or ())
        timestamp = (each["timestamp"] - EPOCH) // timedelta(milliseconds=1)
        yield each["offset"], row_of(each["value"], each["key"], headers, timestamp)


def row_of(value: bytes | None, key: bytes | None, headers: Headers, timestamp: int) -> Row:
    assert value is not None
    assert value.startswith(VALUE)
    return Row(int(value[len(VALUE) :]), key, headers, timestamp)


def places_of(cluster: Cluster, topic: str) -> list[TopicPartition]:
    count = len(cluster.refresh([topic]).topics[topic].partitions)
    return [TopicPartition(topic, number) for number in range(count)]
