"""States of partitions and replicas, and the legal transitions.

    partition   NonExistent ─► New ─► Online ◄─► Offline ─► NonExistent          (and New ─► Offline)

    replica     NonExistent ─► New ─► Online ◄─► Offline ─► DeletionStarted ─► DeletionSuccessful ─► NonExistent
                                                   ▲  │            │
                                                   │  ▼            │
                                               DeletionIneligible ◄┘  (and New ─► Offline, DeletionIneligible ─► Online)

Any transition that is not in the tables below is rejected and logged. The states are not stored in the registry. A new
controller derives them from the registered brokers and the leaders in the registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum, unique


@unique
class PartitionState(StrEnum):
    """New: assigned, never had a leader. Online: a leader was elected. Offline: the leader is gone."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


@unique
class ReplicaState(StrEnum):
    """DELETION_INELIGIBLE: the replica could not be deleted. The deletion is retried when its broker starts."""

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


EXISTING_PARTITION_STATES = (PartitionState.ONLINE, PartitionState.OFFLINE, PartitionState.NEW)
"""Most frequent first: the context searches them in this order for a partition."""
VALID_PREVIOUS_PARTITION_STATES: Mapping[PartitionState, frozenset[PartitionState]] = {
    PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
    PartitionState.ONLINE: frozenset(EXISTING_PARTITION_STATES),
    PartitionState.OFFLINE: frozenset(EXISTING_PARTITION_STATES),
    PartitionState.NON_EXISTENT: frozenset({PartitionState.OFFLINE}),
}

NOT_DELETED = frozenset(
    {ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_INELIGIBLE}
)
VALID_PREVIOUS_REPLICA_STATES: Mapping[ReplicaState, frozenset[ReplicaState]] = {
    ReplicaState.NEW: frozenset({ReplicaState.NON_EXISTENT}),
    ReplicaState.ONLINE: NOT_DELETED,
    ReplicaState.OFFLINE: NOT_DELETED,
    ReplicaState.DELETION_STARTED: frozenset({ReplicaState.OFFLINE}),
    ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.DELETION_STARTED}),
    ReplicaState.DELETION_INELIGIBLE: frozenset(
        {ReplicaState.DELETION_STARTED, ReplicaState.OFFLINE}
    ),
    ReplicaState.NON_EXISTENT: frozenset({ReplicaState.DELETION_SUCCESSFUL}),
}
