"""The layout of a cluster for the planner: metadata, sizes of logs, and reassignments in progress."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from barnabas.cli.terminal.output import print_warning
from barnabas.client.cluster import Cluster
from barnabas.client.log_dir_admin import LogDirAdmin
from barnabas.client.reassignment_admin import OngoingReassignment
from barnabas.client.view import ClusterView, PartitionView
from barnabas.errors import ApiError
from barnabas.model import BrokerId, TopicPartition
from barnabas.reassignment.layout import Layout, PlacedPartition

LogSizes = Mapping[tuple[TopicPartition, int], int]
"""Bytes of the log of a partition on a broker."""


def read_layout(cluster: Cluster, ongoing: Mapping[TopicPartition, OngoingReassignment]) -> Layout:
    """Return all partitions. Those that are being reassigned have the replicas of their target.

    A broker that is registered and does not answer counts as not alive: it may have crashed just now.
    """
    brokers = cluster.retry(lambda: cluster.refresh(None), refresh=False).brokers
    logs: dict[tuple[TopicPartition, int], int] = {}
    silent = []
    for broker in sorted(map(int, brokers)):
        try:
            logs.update(read_log_sizes(cluster, broker, None))
        except ApiError as error:
            print_warning(f"broker {broker} does not answer, and counts as down: {error.message}")
            silent.append(broker)
    return layout_from_view(cluster.refresh(None), logs, ongoing, silent)


def read_log_sizes(
    cluster: Cluster, broker: int, partitions: Collection[TopicPartition] | None
) -> dict[tuple[TopicPartition, int], int]:
    """Return the sizes of the logs on a live broker. Logs that move to another directory are left out."""
    directories = LogDirAdmin(cluster).describe_log_dirs([broker], partitions)[BrokerId(broker)]
    return {
        (log.partition, broker): log.size_bytes
        for directory in directories
        for log in directory.logs
        if not log.is_future
    }


def layout_from_view(
    view: ClusterView,
    logs: LogSizes,
    ongoing: Mapping[TopicPartition, OngoingReassignment],
    silent: Collection[int] = (),
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
        brokers={
            int(broker): found.rack
            for broker, found in sorted(view.brokers.items())
            if broker not in silent
        },
        partitions=dict(sorted(partitions.items())),
    )


def log_size(partition: TopicPartition, view: PartitionView, logs: LogSizes) -> int:
    """Return the size on the leader; without a leader, the largest size."""
    if (partition, int(view.leader)) in logs:
        return logs[partition, int(view.leader)]
    sizes = [logs[partition, each] for each in view.replicas if (partition, each) in logs]
    return max(sizes, default=0)
