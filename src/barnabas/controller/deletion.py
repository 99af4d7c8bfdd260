"""Topic deletion: replicas are stopped and deleted on all brokers, then the znodes are deleted.

    queued     a marker in /admin/delete_topics: no more elections or new partitions; reassignments end
    started    partitions → Offline → NonExistent; UpdateMetadata with leader -2 makes brokers forget the topic
    stopping   replicas → Offline → DeletionStarted: StopReplica twice, the second time with delete
    responses  each replica → DeletionSuccessful, or → DeletionIneligible, which makes the whole topic wait
    complete   all replicas are DeletionSuccessful: the znodes are deleted, the marker last

A topic is ineligible, and waits, if the broker of a replica is offline or the log directory of a replica has failed.
The wait ends when a broker with a replica of the topic starts. There is no timer.

After a crash the marker is still there, and the next controller starts again. Brokers report success for replicas they
no longer have. Znodes that are already deleted are no error.

A topic that is marked during a reassignment is deleted at once, with the replicas that are being added. So does Kafka,
except after a controller failover: then it first waits for the reassignment, which may never complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from barnabas.controller.context import ControllerContext, Partitions, Replicas
from barnabas.controller.decision import SendUpdateMetadata
from barnabas.controller.states import VALID_PREVIOUS_REPLICA_STATES, PartitionState, ReplicaState
from barnabas.controller.steps import (
    DeleteTopicZnodes,
    MovePartitions,
    Plan,
    RemoveReassignmentRequests,
    move_replicas_to,
    run_in_chunks,
)
from barnabas.errors import ErrorCode
from barnabas.model import BrokerId, Replica, TopicPartition

# ---- events -----------------------------------------------------------------------------------------------


def plan_marked_topics(
    context: ControllerContext, marked: Iterable[str], *, deletion_enabled: bool
) -> tuple[Plan, tuple[str, ...]]:
    """Return a plan to delete the marked topics, and the markers to remove.

    Markers are removed for unknown topics, and all of them if deletion is disabled.
    """
    markers = sorted(marked)
    known = dict.fromkeys(t for t in markers if deletion_enabled and t in context.all_topics)
    rejected = tuple(topic for topic in markers if topic not in known)
    reassigned = tuple(p for p in context.partitions_being_reassigned if p.topic in known)
    context.queue_topic_deletion(known)
    return plan_queued_topics(context, reassigned), rejected


def plan_queued_topics(context: ControllerContext, reassigned: Partitions) -> Plan:
    """Start deletions. `reassigned` are the partitions whose reassignment has ended with the deletion."""
    if reassigned:
        yield RemoveReassignmentRequests(partitions=reassigned)
    yield from resume_deletions(context)


def plan_stop_replica_results(
    context: ControllerContext, broker: BrokerId, errors: Mapping[TopicPartition, ErrorCode]
) -> Plan:
    """Handle the results of StopReplica with delete. Topics whose deletion has not started are ignored."""
    results = [
        (Replica(partition, broker), error)
        for partition, error in sorted(errors.items())
        if partition.topic in context.topics_with_deletion_started
    ]
    yield from fail_replica_deletion(
        context, tuple(replica for replica, error in results if error is not ErrorCode.NONE)
    )
    deleted = [replica for replica, error in results if error is ErrorCode.NONE]
    if deleted:
        yield from move_replicas_if_allowed(context, deleted, ReplicaState.DELETION_SUCCESSFUL)
        yield from resume_deletions(context)


def fail_replica_deletion(context: ControllerContext, replicas: Replicas) -> Plan:
    """Handle replicas of queued topics that cannot be deleted now. Their topics become ineligible."""
    if replicas:
        yield from move_replicas_if_allowed(context, replicas, ReplicaState.DELETION_INELIGIBLE)
        context.mark_ineligible_for_deletion(each.partition.topic for each in replicas)
        yield from resume_deletions(context)


def resume_deletions(context: ControllerContext, topics: Iterable[str] = ()) -> Plan:
    """Continue the deletion of every queued topic. `topics` become eligible."""
    context.mark_eligible_for_deletion(topics)
    deleted: list[str] = []
    ineligible: list[Replica] = []
    startable: list[str] = []
    for topic in context.topics_to_be_deleted:
        if context.are_all_replicas_in_state(topic, ReplicaState.DELETION_SUCCESSFUL):
            deleted.append(topic)
            continue
        if context.is_any_replica_in_state(topic, ReplicaState.DELETION_STARTED):
            continue
        ineligible += context.replicas_in_state(topic, ReplicaState.DELETION_INELIGIBLE)
        if context.is_topic_eligible_for_deletion(topic):
            startable.append(topic)
    yield from move_replicas_to(tuple(ineligible), ReplicaState.OFFLINE)
    if startable:
        yield from start_deletions(context, startable)
    # Last, because clients do not wait for the znodes: they get their response when brokers have removed the topic.
    if deleted:
        yield from complete_deletions(context, deleted)


# ---- phases -----------------------------------------------------------------------------------------------


def start_deletions(context: ControllerContext, topics: list[str]) -> Plan:
    """Take the partitions offline, and stop and delete the online replicas."""
    not_started = [topic for topic in topics if topic not in context.topics_with_deletion_started]
    partitions = tuple(chain.from_iterable(map(context.partitions_of, not_started)))
    if partitions:
        yield MovePartitions(partitions=partitions, target=PartitionState.OFFLINE)
        yield MovePartitions(partitions=partitions, target=PartitionState.NON_EXISTENT)
    context.begin_topic_deletion(not_started)
    all_partitions = tuple(chain.from_iterable(map(context.partitions_of, topics)))
    yield SendUpdateMetadata(partitions=all_partitions)
    online: list[Replica] = []
    offline: list[Replica] = []

    def classify(some: tuple[TopicPartition, ...]) -> None:
        for replica in context.replicas_of(some):
            if context.replica_state(replica) is not ReplicaState.DELETION_SUCCESSFUL:
                is_online = context.is_replica_online(replica.broker, replica.partition)
                (online if is_online else offline).append(replica)

    yield from run_in_chunks(classify, all_partitions)
    yield from move_replicas_if_allowed(context, offline, ReplicaState.DELETION_INELIGIBLE)
    yield from move_replicas_to(tuple(online), ReplicaState.OFFLINE)
    yield from move_replicas_to(tuple(online), ReplicaState.DELETION_STARTED)
    context.mark_ineligible_for_deletion(replica.partition.topic for replica in offline)


def complete_deletions(context: ControllerContext, topics: list[str]) -> Plan:
    """Delete the znodes and forget the topics."""
    yield from move_replicas_to(
        context.replicas_of(chain.from_iterable(map(context.partitions_of, topics))),
        ReplicaState.NON_EXISTENT,
    )
    yield DeleteTopicZnodes(topics=tuple(topics))
    for topic in topics:
        yield from run_in_chunks(context.remove_partitions, context.partitions_of(topic))
        context.remove_topic(topic)


def move_replicas_if_allowed(
    context: ControllerContext, replicas: Iterable[Replica], target: ReplicaState
) -> Plan:
    """Move the replicas whose state permits it to `target`.

    The others are skipped without an error: a broker may fail, and a response may arrive, in any state of a replica.
    """
    valid = VALID_PREVIOUS_REPLICA_STATES[target]
    allowed = tuple(each for each in replicas if context.replica_state(each) in valid)
    yield from move_replicas_to(allowed, target)
