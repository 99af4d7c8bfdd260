"""Test access to topics with our own client, so that only one side uses Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from uuid import uuid4

from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession
from pyspark.sql.streaming import DataStreamReader

from barnabas.batch.compression import Compression
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.blocking import Deadline, pause
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Beginning, ConsumedRecord, Consumer
from barnabas.client.offsets import earliest_offsets, latest_offsets
from barnabas.client.producer import Producer
from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition


class Topics:
    """The topics of one cluster."""

    def __init__(self, spark: SparkSession, servers: str) -> None:
        self.spark = spark
        self.servers = servers

    @contextmanager
    def client(self) -> Iterator[Cluster]:
        with Cluster(self.servers) as cluster:
            yield cluster

    def create(
        self, name: str = "", *, partitions: int = 1, mark: bool = True, **configs: str
    ) -> str:
        name = f"{name or 'topic'}-{uuid4().hex[:8]}" if mark else name
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        with self.client() as cluster:
            for outcome in Admin(cluster).create_topics(
                [NewTopic(name=name, partitions=partitions, configs=settings)]
            ):
                if outcome.error is not None:
                    raise outcome.error
        return name

    def delete(self, name: str) -> None:
        with self.client() as cluster:
            for outcome in Admin(cluster).delete_topics([name]):
                if outcome.error is not None:
                    raise outcome.error
            deadline = Deadline(30)
            while name in cluster.refresh(None).topics:
                assert not deadline.passed
                pause(0.01)

    def recreate(self, name: str) -> None:
        self.delete(name)
        with self.client() as cluster:
            deadline = Deadline(30)
            while True:
                (outcome,) = Admin(cluster).create_topics([NewTopic(name=name, partitions=1)])
                if outcome.error is None:
                    return
                assert outcome.error.code is ErrorCode.TOPIC_ALREADY_EXISTS
                assert not deadline.passed
                pause(0.02)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        with self.client() as cluster:
            Admin(cluster).delete_records(before)

    def write(
        self,
        topic: str,
        values: Sequence[str],
        *,
        partition: int | None = None,
        keyed: bool = False,
        timestamps: Sequence[int] | None = None,
        compression: Compression = Compression.NONE,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        with self.client() as cluster, Producer(cluster, compression=compression) as producer:
            for index, value in enumerate(values):
                producer.send(
                    topic,
                    value.encode(),
                    key=value.encode() if keyed else None,
                    partition=partition,
                    timestamp=timestamps[index] if timestamps else None,
                    headers=headers,
                )

    def records(self, topic: str) -> dict[int, list[ConsumedRecord]]:
        """All records, by partition."""
        found: dict[int, list[ConsumedRecord]] = {}
        with self.client() as cluster:
            count = len(cluster.topic(topic).partitions)
            partitions = [TopicPartition(topic, index) for index in range(count)]
            left = sum(latest_offsets(cluster, partitions).values())
            left -= sum(earliest_offsets(cluster, partitions).values())
            consumer = Consumer(cluster, dict.fromkeys(partitions, Beginning()))
            for record in islice(consumer.records(), left):
                found.setdefault(record.partition, []).append(record)
        return found

    # ---- Spark ----------------------------------------------------------------------------------------------------

    def reader(self, **options: object) -> DataFrameReader:
        return self.spark.read.format("barnabas").options(**self.with_servers(options))

    def stream(self, **options: object) -> DataStreamReader:
        return self.spark.readStream.format("barnabas").options(**self.with_servers(options))

    def writer(self, rows: DataFrame, **options: object) -> DataFrameWriter:
        return rows.write.format("barnabas").options(**self.with_servers(options)).mode("append")

    def with_servers(self, options: Mapping[str, object]) -> dict[str, object]:
        named = {name.replace("__", "."): value for name, value in options.items()}
        return {"kafka.bootstrap.servers": self.servers, **named}


def values_of(rows: DataFrame) -> list[str]:
    """Sorted values."""
    return sorted(bytes(row.value).decode() for row in rows.select("value").collect())


def numbered(count: int, mark: str = "v") -> list[str]:
    return [f"{mark}{index:04}" for index in range(count)]
