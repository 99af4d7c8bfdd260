"""Admin client for log directories: describe them, and move replicas between the directories of a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.core import error_of, raise_if
from barnabas.errors import ApiError
from barnabas.model import BrokerId, TopicPartition
from barnabas.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from barnabas.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

ReplicaKey = tuple[str, int, int]
"""Topic, partition and broker id."""


class ReplicaLog(NamedTuple):
    """One log in a directory. `offset_lag` is the number of offsets that it lacks, -1 if unknown.

    `is_future`: the replica moves to this directory, and the log will replace the one in the other directory.
    """

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDirView(NamedTuple):
    """A log directory of a broker. `error` is set if it is offline. Sizes are in bytes, -1 if unknown."""

    path: str
    error: ApiError | None
    total_bytes: int
    usable_bytes: int
    logs: tuple[ReplicaLog, ...]


class LogDirAdmin:
    """Admin client for log directories. Methods raise ApiError, unless they return it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[BrokerId, tuple[LogDirView, ...]]:
        """Return the log directories of each broker, with the logs of these partitions. None means all."""
        targets = sorted(self.cluster.refresh([]).brokers) if brokers is None else list(brokers)
        topics = None
        if partitions is not None:
            topics = tuple(
                DescribableLogDirTopic(name, indexes)
                for name, indexes in group_partitions(partitions).items()
            )
        found: dict[BrokerId, tuple[LogDirView, ...]] = {}
        for broker in map(BrokerId, targets):
            request = DescribeLogDirsRequest(topics=topics)
            response = self.cluster.ask(broker, request, DescribeLogDirsResponse)
            raise_if(response.error_code, f"log directories of broker {broker}")
            found[broker] = tuple(parse_log_dir(result) for result in response.results)
        return found

    def alter_replica_log_dirs(
        self, directories: Mapping[ReplicaKey, str]
    ) -> dict[ReplicaKey, ApiError | None]:
        """Move replicas, keyed by (topic, partition, broker), to other log directories of their broker.

        Each result is an error, or None if the move has begun or the replica is there already. `describe_log_dirs`
        shows the progress. REPLICA_NOT_AVAILABLE: the broker has no replica yet, and creates it in this directory.
        """
        by_broker: dict[int, dict[TopicPartition, str]] = {}
        for (topic, index, broker), path in directories.items():
            by_broker.setdefault(broker, {})[TopicPartition(topic, index)] = path
        results: dict[ReplicaKey, ApiError | None] = {}
        for broker, paths in by_broker.items():
            response = self.cluster.ask(
                BrokerId(broker), alter_request(paths), AlterReplicaLogDirsResponse
            )
            for found in response.results:
                for result in found.partitions:
                    tp = TopicPartition(found.topic_name, result.partition_index)
                    error = error_of(result.error_code, f"{tp} on broker {broker}")
                    results[(*tp, broker)] = error
        return results


def alter_request(paths: Mapping[TopicPartition, str]) -> AlterReplicaLogDirsRequest:
    """Return the request that moves each partition to its directory."""
    by_path: dict[str, list[TopicPartition]] = {}
    for tp, path in paths.items():
        by_path.setdefault(path, []).append(tp)
    return AlterReplicaLogDirsRequest(
        dirs=tuple(
            AlterReplicaLogDir(
                path,
                tuple(
                    AlterReplicaLogDirTopic(name, indexes)
                    for name, indexes in group_partitions(partitions).items()
                ),
            )
            for path, partitions in by_path.items()
        )
    )


def group_partitions(partitions: Iterable[TopicPartition]) -> dict[str, tuple[int, ...]]:
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return {name: tuple(indexes) for name, indexes in by_topic.items()}


def parse_log_dir(result: DescribeLogDirsResult) -> LogDirView:
    return LogDirView(
        path=result.log_dir,
        error=error_of(result.error_code, result.log_dir),
        total_bytes=result.total_bytes,
        usable_bytes=result.usable_bytes,
        logs=tuple(
            ReplicaLog(
                TopicPartition(topic.name, log.partition_index),
                log.partition_size,
                log.offset_lag,
                log.is_future_key,
            )
            for topic in result.topics
            for log in topic.partitions
        ),
    )
