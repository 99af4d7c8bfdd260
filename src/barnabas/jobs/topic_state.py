"""A topic as a job sees it when it starts, and the DataFrame of its records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec import Struct

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import earliest_offsets, latest_offsets
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.spark.client_settings import cluster_options
from barnabas.spark.planning import LogSpan
from barnabas.wire.messages.describe_configs import ConfigSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLUSTER_SETTINGS = frozenset(
    {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
)
"""Settings that name brokers. They make no sense for a copy of the topic."""


class TopicState(Struct, frozen=True, kw_only=True):
    """A topic at one moment. `spans` has the offsets of each partition that consumers with read_committed can read."""

    name: str
    id: UUID
    settings: Mapping[str, str]
    """The settings that are set on the topic itself."""
    spans: tuple[LogSpan, ...]
    replication_factor: int = -1

    @property
    def partition_count(self) -> int:
        return len(self.spans)

    @property
    def is_empty(self) -> bool:
        return all(span.earliest == span.latest for span in self.spans)


def look_up_state(cluster: Cluster, name: str) -> TopicState:
    """Return the state of a topic. Raises ApiError."""
    (topic,) = Admin(cluster).describe_topics([name])
    partitions = [TopicPartition(name, found.partition) for found in topic.partitions]
    first = earliest_offsets(cluster, partitions)
    end = latest_offsets(cluster, partitions, committed=True)
    return TopicState(
        name=name,
        id=topic.id,
        settings=topic_settings(cluster, name),
        spans=tuple(LogSpan(first[each], max(first[each], end[each])) for each in partitions),
        replication_factor=topic.replication_factor,
    )


def find_state(cluster: Cluster, name: str) -> TopicState | None:
    """Return the state of a topic, or None if it does not exist. Raises ApiError."""
    try:
        return look_up_state(cluster, name)
    except ApiError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return None


def topic_settings(cluster: Cluster, name: str) -> dict[str, str]:
    entries = Admin(cluster).describe_topic_configs([name])[name]
    return {
        entry.name: entry.value
        for entry in entries
        if entry.source is ConfigSource.TOPIC_CONFIG
        and entry.value is not None
        and entry.name not in CLUSTER_SETTINGS
    }


def topic_records(
    spark: SparkSession,
    cluster: Cluster,
    topic: str,
    spans: Mapping[int, LogSpan],
    *,
    records_per_task: int | None = None,
) -> DataFrame:
    """Return the records of these offsets, by partition. Each task reads one range of one partition, in order.

    Records of aborted transactions are left out.
    """
    reader = (
        spark.read.format("barnabas")
        .options(**cluster_options(cluster))
        .option("kafka.isolation.level", "read_committed")
        .option("assign", json.dumps({topic: sorted(spans)}))
        .option("startingOffsets", offsets_json(topic, spans, 0))
        .option("endingOffsets", offsets_json(topic, spans, 1))
        .option("includeHeaders", "true")
    )
    if records_per_task is not None:
        reader = reader.option("maxRecordsPerPartition", records_per_task)
    return reader.load()


def count_offsets(spans: Mapping[int, LogSpan]) -> int:
    return sum(span.latest - span.earliest for span in spans.values())


def offsets_json(topic: str, spans: Mapping[int, LogSpan], end: int) -> str:
    return json.dumps({topic: {str(number): span[end] for number, span in spans.items()}})
