"""Reassignment: the replicas of partitions move to other brokers.

    requested   replicas = target, then origin; adding = target - origin; removing = origin - target
                → written to the topic znode; replicas that an earlier request added and this one drops are deleted
    copying     the leader epoch rises, so that the leader accepts the adding replicas; they fetch until they are in
                sync
    completed   all target replicas are in the ISR: one of them leads, the removing replicas leave the ISR and are
                deleted, and the topic znode gets replicas = target

Example: 1,2,3 moves to 4,5,6. The replicas are 4,5,6,1,2,3 with ISR 1,2,3, later ISR 1,2,3,4,5,6. Then broker 4 leads,
the ISR shrinks to 4,5,6, and the replicas become 4,5,6. The leader epoch rises by one for the request, one for the
election and one for each replica that leaves the ISR.

A reassignment that cannot complete waits. It continues when an ISR changes, when a broker with a target replica starts,
and under a new controller. The topic znode names the origin until the last write, so a new controller can continue from
any point: all steps may be repeated. To cancel is to reassign to the origin. A topic that is marked for deletion is no
longer reassigned: all its replicas are deleted.

Kafka handles one partition at a time. Here the partitions of a request go through each phase together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from barnabas.controller.assignment import (
    is_being_reassigned,
    origin_replicas,
    reassign_to,
    target_replicas,
)
from barnabas.controller.context import ControllerContext, Partitions
from barnabas.controller.decision import SendUpdateMetadata
from barnabas.controller.elections import Strategy
from barnabas.controller.partition_machine import join_ids
from barnabas.controller.states import NOT_DELETED, PartitionState, ReplicaState
from barnabas.controller.steps import (
    MovePartitions,
    Plan,
    RaiseLeaderEpochs,
    RemoveReassignmentRequests,
    WriteAssignments,
    move_replicas_to,
)
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.znodes import ReplicaAssignment
from barnabas.model import BrokerId, Replica, TopicPartition

SHOWN_MAX = 20  # broker ids in an error message

# ---- validation -------------------------------------------------------------------------------------------


def requested_assignment(
    context: ControllerContext,
    partition: TopicPartition,
    target: Sequence[BrokerId] | None,
    *,
    requires_live_brokers: bool = True,
) -> ReplicaAssignment:
    """Return the assignment that starts a reassignment to `target`, or that cancels the current one (None).

    A request in the registry does not require that the brokers of new replicas are live. Raises ApiError.
    """
    current = context.assignment(partition)
    if target is None:
        if not is_being_reassigned(current):
            why = f"{partition} is not being reassigned"
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, why)
        requested = ReplicaAssignment(replicas=origin_replicas(current))
    else:
        check_replica_list(target)
        requested = reassign_to(current, target)
        missing = [broker for broker in requested.adding if not context.is_live(broker)]
        if missing and requires_live_brokers:
            raise invalid_assignment(f"brokers {join_ids(missing[:SHOWN_MAX])} are not online")
    if not context.has_partition(partition):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
    if context.is_topic_queued_for_deletion(partition.topic):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic is being deleted")
    leadership = context.leadership.get(partition)
    if leadership is not None and not set(leadership.isr) & set(requested.replicas):
        # Kafka deletes the replicas, and all records are lost.
        why = f"no in-sync replica would remain, the ISR is {join_ids(leadership.isr)}"
        raise invalid_assignment(why)
    return requested


def check_replica_list(target: Sequence[BrokerId]) -> None:
    if not target:
        raise invalid_assignment("the replica list is empty")
    if len(set(target)) < len(target):
        raise invalid_assignment(f"replica list {join_ids(target[:SHOWN_MAX])} has duplicates")
    if min(target) < 0:
        raise invalid_assignment(f"broker id {min(target)} is negative")


def invalid_assignment(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


# ---- phases -----------------------------------------------------------------------------------------------


def plan_reassignments(
    context: ControllerContext,
    requested: Mapping[TopicPartition, ReplicaAssignment],
    errors: dict[TopicPartition, ApiError],
) -> Plan:
    """Start, replace or cancel reassignments. The assignments are those of `requested_assignment`.

    A reassignment that cannot be written does not start, and is added to `errors`. Otherwise the next controller would
    not know of it, and would delete the replicas that were added.
    """
    changed = {
        partition: assignment
        for partition, assignment in requested.items()
        if assignment != context.assignment(partition)
    }
    if changed:
        yield WriteAssignments(assignments=changed, errors=errors)
        dropped: list[Replica] = []
        for partition, assignment in changed.items():
            if partition not in errors:
                before = context.replicas(partition)
                context.set_assignment(partition, assignment)
                dropped += (Replica(partition, b) for b in before if b not in assignment.replicas)
        yield from delete_replicas(context, dropped)
    started = tuple(each for each in requested if each not in errors)
    context.partitions_being_reassigned.update(dict.fromkeys(started))
    yield from continue_reassignments(context, started)


def continue_reassignments(context: ControllerContext, partitions: Partitions) -> Plan:
    """Complete the reassignments whose target replicas are in sync, and start the new replicas of the others."""
    complete = dict.fromkeys(each for each in partitions if can_complete(context, each))
    copying = tuple(each for each in partitions if each not in complete)
    if copying:
        yield from start_new_replicas(context, copying)
    yield from complete_reassignments(context, tuple(complete))


def complete_ready_reassignments(context: ControllerContext) -> Plan:
    """Complete the reassignments whose target replicas are in sync, after ISRs changed."""
    changed, context.reassigned_with_new_isr = context.reassigned_with_new_isr, {}
    ready = tuple(
        each
        for each in changed
        if each in context.partitions_being_reassigned and can_complete(context, each)
    )
    yield from complete_reassignments(context, ready)


def can_complete(context: ControllerContext, partition: TopicPartition) -> bool:
    """Whether all target replicas are in the ISR, and at least one can lead. A cancelled reassignment can."""
    assignment = context.assignment(partition)
    if not is_being_reassigned(assignment):
        return True
    leadership = context.leadership.get(partition)
    target = target_replicas(assignment)
    return (
        leadership is not None
        and set(target) <= set(leadership.isr)
        and any(context.is_replica_online(broker, partition) for broker in target)
    )


def start_new_replicas(context: ControllerContext, partitions: Partitions) -> Plan:
    """Inform the current replicas of the new assignment, and start the replicas that are added."""
    led = tuple(each for each in partitions if each in context.leadership)
    if led:
        yield RaiseLeaderEpochs(partitions=led)
    added = (
        Replica(partition, broker)
        for partition in partitions
        for broker in context.assignment(partition).adding
    )
    new = tuple(each for each in added if context.replica_state(each) is ReplicaState.NON_EXISTENT)
    yield from move_replicas_to(new, ReplicaState.NEW)
    # Never had a leader, because all its replicas were offline. A new replica may lead now.
    leaderless = tuple(
        each for each in partitions if context.partition_state(each) is PartitionState.NEW
    )
    if leaderless:
        yield MovePartitions(
            partitions=leaderless, target=PartitionState.ONLINE, strategy=Strategy.OFFLINE
        )
        ready = tuple(each for each in leaderless if can_complete(context, each))
        yield from complete_reassignments(context, ready)


def complete_reassignments(context: ControllerContext, partitions: Partitions) -> Plan:
    """Move leaderships to target replicas, delete the removed replicas, and write the final assignments."""
    if not partitions:
        return
    moving = {partition: context.assignment(partition) for partition in partitions}
    added = (Replica(p, broker) for p, assignment in moving.items() for broker in assignment.adding)
    new = tuple(each for each in added if context.replica_state(each) is ReplicaState.NEW)
    yield from move_replicas_to(new, ReplicaState.ONLINE)
    for partition, assignment in moving.items():
        final = ReplicaAssignment(replicas=target_replicas(assignment))
        context.set_assignment(partition, final)
    led = [each for each in partitions if each in context.leadership]
    staying = tuple(each for each in led if has_assigned_leader(context, each))
    if staying:
        yield RaiseLeaderEpochs(partitions=staying)
    electing = tuple(each for each in led if not has_assigned_leader(context, each))
    if electing:
        yield from elect_target_leaders(context, electing)
        for partition in electing:
            failed = not has_assigned_leader(context, partition)
            if failed and is_being_reassigned(moving[partition]):
                # Wait with all replicas assigned: a replica to be removed may be the only leader.
                context.set_assignment(partition, moving.pop(partition))
                context.reassigned_with_new_isr[partition] = None
    removed = (Replica(p, broker) for p, before in moving.items() for broker in before.removing)
    yield from delete_replicas(context, removed)
    done = tuple(moving)
    yield WriteAssignments(assignments={each: context.assignment(each) for each in done})
    for partition in done:
        context.partitions_being_reassigned.pop(partition, None)
        context.reassigned_with_new_isr.pop(partition, None)
    yield RemoveReassignmentRequests(partitions=done)
    yield SendUpdateMetadata(partitions=done)


def elect_target_leaders(context: ControllerContext, partitions: Partitions) -> Plan:
    """Elect a target replica of each partition. If that fails, a partition without a leader stays Offline."""
    leaderless = tuple(
        each
        for each in partitions
        if not context.is_replica_online(context.leadership[each].leader, each)
    )
    if leaderless:
        yield MovePartitions(partitions=leaderless, target=PartitionState.OFFLINE)
    yield MovePartitions(
        partitions=partitions, target=PartitionState.ONLINE, strategy=Strategy.REASSIGN
    )


def has_assigned_leader(context: ControllerContext, partition: TopicPartition) -> bool:
    """Whether the leader is an assigned replica, and online."""
    leader = context.leadership[partition].leader
    return leader in context.replicas(partition) and context.is_replica_online(leader, partition)


def delete_replicas(context: ControllerContext, replicas: Iterable[Replica]) -> Plan:
    """Stop and delete replicas that are no longer assigned. The responses of their brokers are not awaited.

    A broker that is offline keeps the log. At its start it renames the log to *-stray.
    """
    existing = tuple(each for each in replicas if context.replica_state(each) in NOT_DELETED)
    for state in (
        ReplicaState.OFFLINE,
        ReplicaState.DELETION_STARTED,
        ReplicaState.DELETION_SUCCESSFUL,
        ReplicaState.NON_EXISTENT,
    ):
        yield from move_replicas_to(existing, state)
