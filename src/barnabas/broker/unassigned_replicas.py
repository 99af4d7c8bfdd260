"""Removal of replicas that were moved away while the controller failed.

The controller deletes a removed replica with StopReplica. If it fails before it has sent the request, the topic znode
no longer names the replica, and the next controller does not know of it. But UpdateMetadata of that controller shows
that the partition has no replica on this broker. The broker then reads the assignment, and deletes its replica. It
keeps a replica that is still in the ISR: no other may have the records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from barnabas.broker.context import BrokerContext
from barnabas.broker.control_plane import catch_up
from barnabas.broker.startup.lost_logs import find_in_sync
from barnabas.broker.startup.stray_logs import read_partitions
from barnabas.errors import RegistryError
from barnabas.model import NO_EPOCH, LeaderEpoch, TopicPartition
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.wire.messages.stop_replica import StopReplicaPartitionState
from barnabas.wire.messages.update_metadata import UpdateMetadataRequest

logger = logging.getLogger("barnabas.replicas")

DELAY_SECONDS = 2.0
"""StopReplica of a living controller follows UpdateMetadata within this time."""


def find_unassigned(
    replicas: ReplicaManager, request: UpdateMetadataRequest
) -> list[TopicPartition]:
    """Return the partitions of this broker that have no replica here, according to the request."""
    return [
        TopicPartition(topic.topic_name, state.partition_index)
        for topic in request.topic_states
        for state in topic.partition_states
        if replicas.broker_id not in state.replicas
        and (topic.topic_name, state.partition_index) in replicas.partitions
    ]


async def remove_unassigned(context: BrokerContext, suspects: Iterable[TopicPartition]) -> None:
    """Delete the replicas that are not assigned to this broker, unless StopReplica or LeaderAndIsr comes first."""
    await asyncio.sleep(DELAY_SECONDS)
    replicas = context.replicas
    found: dict[TopicPartition, tuple[Partition, LeaderEpoch]] = {
        tp: (partition, partition.leader_epoch)
        for tp in suspects
        if (partition := replicas.partitions.get(tp)) is not None
    }
    if not found:
        return
    unassigned: list[TopicPartition] = []
    try:
        await catch_up(context.registry)
        for name in dict.fromkeys(tp.topic for tp in found):
            assigned = await read_partitions(context.registry, name, replicas.broker_id)
            if assigned is not None:
                unassigned += (
                    tp for tp in found if tp.topic == name and tp.partition not in assigned
                )
        in_sync = await find_in_sync(context.registry, unassigned, replicas.broker_id)
    except RegistryError as error:
        logger.warning("cannot look for unassigned replicas error=%s", error)
        return
    async with context.control.lock:
        states = {
            tp: StopReplicaPartitionState(tp.partition, NO_EPOCH, delete_partition=True)
            for tp in unassigned
            if tp not in in_sync and is_unchanged(replicas, tp, *found[tp])
        }
        if states:
            names = ",".join(map(str, list(states)[:20]))
            logger.warning("deleting unassigned replicas count=%d first=%s", len(states), names)
            await replicas.stop_replicas(states)


def is_unchanged(
    replicas: ReplicaManager, tp: TopicPartition, partition: Partition, leader_epoch: LeaderEpoch
) -> bool:
    """Return whether no request of the controller has changed the partition, or replaced it by one of a new topic."""
    return replicas.partitions.get(tp) is partition and partition.leader_epoch == leader_epoch
