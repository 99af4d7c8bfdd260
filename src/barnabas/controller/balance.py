"""Which partitions should be led by their preferred replica again.

The preferred replica is the first one assigned. A broker that was away has lost its leaders to others; when it is back
and in sync, and more than so many percent of what should be led by it is not, it gets them back.
"""

from __future__ import annotations

from barnabas.controller.context import ControllerContext, Partitions
from barnabas.model import BrokerId, TopicPartition


def unbalanced(context: ControllerContext, *, percentage: int) -> Partitions:
    """The partitions to hold a preferred election for."""
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
            found += (each for each in led_by_others if may_lead(context, each, broker))
    return tuple(found)


def may_lead(context: ControllerContext, partition: TopicPartition, broker: BrokerId) -> bool:
    return (
        context.is_replica_online(broker, partition)
        and broker in context.leadership[partition].isr
        and partition not in context.partitions_being_reassigned
    )
