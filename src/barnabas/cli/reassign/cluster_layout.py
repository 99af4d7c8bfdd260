"""The layout of a cluster for the planner: metadata, sizes of logs, and reassignments in progress."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.reassignment_admin import OngoingReassignment
from barnabas.client.view import ClusterView, PartitionView
from barnabas.model import BrokerId, TopicPartition
from barnabas.reassignment.layout import Layout, PlacedPartition

LogSizes = Mapping[tuple[TopicPartition, int], int]
"""Bytes of the log of a partition on a broker."""


def read_layout(cluster: Cluster, ongoing: Mapping[TopicPartition, OngoingReassignment]) -> Layout:
    """Return all partitions. Those that are being reassigned have the replicas of their target."""
    view = cluster.retry(lambda: cluster.refresh(None), refresh=False)
    logs = read_log_sizes(cluster, view.brokers, None)
    return layout_from_view(view, logs, ongoing)


def read_log_sizes(
    cluster: Cluster, brokers: Iterable[int], partitions: Collection[TopicPartition] | None
) -> dict[tuple[TopicPartition, int], int]:
    """Return the sizes of the logs on these live brokers. Logs that move to another directory are left out."""
    found = {}
    results = Admin(cluster).log_dirs([BrokerId(each) for each in sorted(brokers)], partitions)
    for broker, directories in results.items():
        for directory in directories:
            for topic in directory.topics:
                for log in topic.partitions:
                    if not log.is_future_key:
                        partition = TopicPartition(topic.name, log.partition_index)
                        found[partition, int(broker)] = log.partition_size
    return found


def layout_from_view(
    view: ClusterView, logs: LogSizes, ongoing: Mapping[TopicPartition, OngoingReassignment]
) -> Layout:
    partitions = {}
    for topic in view.topics.values():
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition)
            moving = ongoing.get(partition)
            partitions[partition] = PlacedPartition(
                replicas=each.replicas if moving is None else moving.target,
                isr=each.isr,
                leader=each.leader,
                size=log_size(partition, each, logs),
            )
    return Layout(
        brokers={int(broker): found.rack for broker, found in sorted(view.brokers.items())},
        partitions=dict(sorted(partitions.items())),
    )


def log_size(partition: TopicPartition, view: PartitionView, logs: LogSizes) -> int:
    """Return the size on the leader; without a leader, the largest size."""
    if (partition, int(view.leader)) in logs:
        return logs[partition, int(view.leader)]
    sizes = [logs[partition, each] for each in view.replicas if (partition, each) in logs]
    return max(sizes, default=0)
