"""The part of a topic that a job reads: offsets of every partition, looked up once before Spark starts.

A job that reads a topic twice must read the same records both times, while producers append to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec import Struct

from barnabas.client.cluster import Cluster
from barnabas.client.offsets import earliest_offsets, latest_offsets, list_offsets, offset_values
from barnabas.client.view import TopicView
from barnabas.jobs.session import default_parallelism
from barnabas.model import TopicPartition
from barnabas.spark.client_settings import cluster_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS_PER_CORE = 3


class TopicRange(Struct, frozen=True, kw_only=True):
    """Offsets to read, by partition: from `starts` up to, not including, `ends`."""

    topic: str
    topic_id: UUID
    starts: Mapping[int, int]
    ends: Mapping[int, int]

    @property
    def partitions(self) -> list[int]:
        return sorted(self.starts)

    @property
    def offsets(self) -> int:
        """Number of offsets to read: at least as many as records."""
        return sum(self.ends[partition] - self.starts[partition] for partition in self.starts)


def look_up_range(
    cluster: Cluster, topic: TopicView, *, from_ms: int | None = None, to_ms: int | None = None
) -> TopicRange:
    """Return the offsets of the records in a time span. Without bounds: all records of the topic.

    As in the brokers' index, a partition is read from its first record at or after `from_ms` up to its first record at
    or after `to_ms`.
    """
    partitions = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
    starts = earliest_offsets(cluster, partitions)
    ends = latest_offsets(cluster, partitions)
    if from_ms is not None:
        found = offset_values(list_offsets(cluster, dict.fromkeys(partitions, from_ms)))
        starts = {each: ends[each] if at < 0 else max(at, starts[each]) for each, at in found.items()}  # fmt: skip
    if to_ms is not None:
        found = offset_values(list_offsets(cluster, dict.fromkeys(partitions, to_ms)))
        ends = {each: ends[each] if at < 0 else min(at, ends[each]) for each, at in found.items()}
    return TopicRange(
        topic=topic.name,
        topic_id=topic.id,
        starts={each.partition: starts[each] for each in partitions},
        ends={each.partition: max(starts[each], ends[each]) for each in partitions},
    )


def load_range(spark: SparkSession, cluster: Cluster, wanted: TopicRange, schema: str) -> DataFrame:
    """Return the records of the range. Records that are deleted meanwhile are missing; Spark logs a warning."""
    tasks = TASKS_PER_CORE * default_parallelism(spark)
    return (
        spark.read.format("barnabas")
        .schema(schema)
        .options(**cluster_options(cluster))
        .option("subscribe", wanted.topic)
        .option("startingOffsets", offsets_option(wanted.topic, wanted.starts))
        .option("endingOffsets", offsets_option(wanted.topic, wanted.ends))
        .option("minPartitions", str(tasks))
        .option("failOnDataLoss", "false")
        .load()
    )


def offsets_option(topic: str, offsets: Mapping[int, int]) -> str:
    """
    >>> offsets_option("orders", {0: 23, 1: 0})
    '{"orders": {"0": 23, "1": 0}}'
    """
    return json.dumps({topic: {str(each): offset for each, offset in offsets.items()}})
