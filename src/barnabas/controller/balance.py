"""Automatic rebalancing: finds partitions that should return to their preferred leader.

The preferred leader is the first assigned replica. A broker that was offline has lost its
leaderships to other replicas. It gets them back when it is in sync again and other brokers lead more than `percentage`
percent of the partitions that prefer it.
"""

from __future__ import annotations

from barnabas.controller.context import ControllerContext, Partitions
from barnabas.model import BrokerId, TopicPartition


def find_unbalanced_partitions(context: ControllerContext, *, percentage: int) -> Partitions:
    """Return the partitions that need a preferred leader election."""
    by_preferred: dict[BrokerId, list[TopicPartition]] = {}
    for partition in context.all_partitions:
        replicas = context.replicas(partition)
        if replicas and not context.is_topic_queued_for_deletion(partition.topic):
            by_preferred.setdefault(replicas[0], []).append(partition)
    found: list[TopicPartition] = []
    for broker, partitions in sorted(by_preferred.items()):
        led_by_others = [
            each
            for each in partitions
            if each in context.leadership and context.leadership[each].leader != broker
        ]
        if 100 * len(led_by_others) > percentage * len(partitions):
            found += (
                each
                for each in led_by_others
                if is_preferred_leader_eligible(context, each, broker)
            )
    return tuple(found)


def is_preferred_leader_eligible(
    context: ControllerContext, partition: TopicPartition, broker: BrokerId
) -> bool:
    return (
        context.is_replica_online(broker, partition)
        and broker in context.leadership[partition].isr
        and partition not in context.partitions_being_reassigned
    )
