"""How a topic goes: its replicas are stopped, then deleted, and only when every broker has said so the znodes go.

    marked     a marker says that it shall go: it is queued, and from now on nobody leads it, moves it or lets it grow
    started    its partitions do not exist any more; brokers hear of leader -2 and forget it
    stopped    replicas → Offline → DeletionStarted: StopReplica twice, the second time with delete
    answered   replica by replica: DeletionSuccessful, or DeletionIneligible, and then the whole topic waits
    complete   every replica is DeletionSuccessful: the znodes go, the marker last

A topic also waits (is ineligible) while one of its replicas is on a dead broker or a broken disk, and while one of its
partitions is reassigned by this controller. The wait ends when a broker that has a replica of it starts, or when the
reassignment ends; there is no timer. A crash at any point leaves the marker, and the next controller begins again:
brokers that hold nothing any more say so, and what is gone from the registry is no error.

In one point this keeps to what Kafka says and not to what it does: a topic that is marked while it is reassigned waits.
Kafka marks the topics that wait before it queues them, and so starts at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from barnabas.controller.context import ControllerContext, Replicas
from barnabas.controller.decision import SendUpdateMetadata
from barnabas.controller.states import (
    VALID_PREVIOUS_REPLICA_STATES,
    PartitionState,
    ReplicaState,
)
from barnabas.controller.steps import (
    DeleteTopicZnodes,
    MovePartitions,
    Plan,
    UnwatchTopics,
    in_turns,
    replicas_to,
)
from barnabas.errors import ErrorCode
from barnabas.model import BrokerId, Replica, TopicPartition

# ---- what leads to it -------------------------------------------------------------------------------------


def topics_marked(
    context: ControllerContext, marked: Iterable[str], *, deletion_enabled: bool
) -> tuple[Plan, tuple[str, ...]]:
    """There are these markers: what to do, and which of them to remove, since they ask for nothing we could do."""
    markers = sorted(marked)
    if not deletion_enabled:
        return nothing(), tuple(markers)
    known = [topic for topic in markers if topic in context.all_topics]
    unknown = tuple(topic for topic in markers if topic not in context.all_topics)
    context.queue_topic_deletion(known)
    context.mark_ineligible_for_deletion(topic for topic in known if is_moving(context, topic))
    return resume_deletions(context), unknown


def stop_replica_answered(
    context: ControllerContext, broker: BrokerId, errors: Mapping[TopicPartition, ErrorCode]
) -> Plan:
    """What a broker says of replicas it was told to delete. Topics whose deletion has not started are not meant."""
    asked = [
        (Replica(partition, broker), error)
        for partition, error in sorted(errors.items())
        if partition.topic in context.topics_with_deletion_started
    ]
    yield from fail_replica_deletion(
        context, tuple(replica for replica, error in asked if error is not ErrorCode.NONE)
    )
    yield from complete_replica_deletion(
        context, tuple(replica for replica, error in asked if error is ErrorCode.NONE)
    )


def fail_replica_deletion(context: ControllerContext, replicas: Replicas) -> Plan:
    """These replicas cannot be deleted now, and their topics wait."""
    failed = tuple(
        each for each in replicas if context.is_topic_queued_for_deletion(each.partition.topic)
    )
    if not failed:
        return
    yield from those_that_may(context, failed, ReplicaState.DELETION_INELIGIBLE)
    context.mark_ineligible_for_deletion(each.partition.topic for each in failed)
    yield from resume_deletions(context)


def complete_replica_deletion(context: ControllerContext, replicas: Replicas) -> Plan:
    """These replicas are gone. An answer to a question of long ago, before their broker died, changes nothing."""
    gone = tuple(
        each for each in replicas if context.is_topic_queued_for_deletion(each.partition.topic)
    )
    if not gone:
        return
    yield from those_that_may(context, gone, ReplicaState.DELETION_SUCCESSFUL)
    yield from resume_deletions(context)


def resume_deletions(context: ControllerContext, topics: Iterable[str] = ()) -> Plan:
    """Go on with every queued topic as far as it can go. `topics` wait no longer, unless they are being reassigned."""
    context.mark_eligible_for_deletion(topic for topic in topics if not is_moving(context, topic))
    done: list[str] = []
    failed: list[Replica] = []
    startable: list[str] = []
    for topic in context.topics_to_be_deleted:
        if context.are_all_replicas_in_state(topic, ReplicaState.DELETION_SUCCESSFUL):
            done.append(topic)
            continue
        if context.is_any_replica_in_state(topic, ReplicaState.DELETION_STARTED):
            continue
        failed += context.replicas_in_state(topic, ReplicaState.DELETION_INELIGIBLE)
        if context.is_topic_eligible_for_deletion(topic):
            startable.append(topic)
    yield from replicas_to(tuple(failed), ReplicaState.OFFLINE)
    if startable:
        yield from start(context, startable)
    # Last, since nobody waits for it: a client is answered when brokers have heard that its topic goes.
    if done:
        yield from complete(context, done)


def is_moving(context: ControllerContext, topic: str) -> bool:
    moving = context.partitions_being_reassigned
    return bool(moving) and any(each in moving for each in context.partitions_of(topic))


def nothing() -> Plan:
    yield from ()


# ---- what it consists of ----------------------------------------------------------------------------------


def start(context: ControllerContext, topics: list[str]) -> Plan:
    unseen = [topic for topic in topics if topic not in context.topics_with_deletion_started]
    partitions = tuple(chain.from_iterable(map(context.partitions_of, unseen)))
    if partitions:
        yield MovePartitions(partitions=partitions, target=PartitionState.OFFLINE)
        yield MovePartitions(partitions=partitions, target=PartitionState.NON_EXISTENT)
    context.begin_topic_deletion(unseen)
    yield SendUpdateMetadata(
        partitions=tuple(chain.from_iterable(map(context.partitions_of, topics)))
    )
    alive: list[Replica] = []
    dead: list[Replica] = []

    def tell_apart(some: tuple[TopicPartition, ...]) -> None:
        for replica in context.replicas_of(some):
            if context.replica_state(replica) is not ReplicaState.DELETION_SUCCESSFUL:
                online = context.is_replica_online(replica.broker, replica.partition)
                (alive if online else dead).append(replica)

    yield from in_turns(tell_apart, tuple(chain.from_iterable(map(context.partitions_of, topics))))
    yield from those_that_may(context, dead, ReplicaState.DELETION_INELIGIBLE)
    yield from replicas_to(tuple(alive), ReplicaState.OFFLINE)
    yield from replicas_to(tuple(alive), ReplicaState.DELETION_STARTED)
    context.mark_ineligible_for_deletion(replica.partition.topic for replica in dead)


def complete(context: ControllerContext, topics: list[str]) -> Plan:
    yield UnwatchTopics(topics=tuple(topics))
    yield from replicas_to(
        context.replicas_of(chain.from_iterable(map(context.partitions_of, topics))),
        ReplicaState.NON_EXISTENT,
    )
    yield DeleteTopicZnodes(topics=tuple(topics))
    for topic in topics:
        yield from in_turns(context.remove_partitions, context.partitions_of(topic))
        context.remove_topic(topic)


def those_that_may(
    context: ControllerContext, replicas: Iterable[Replica], target: ReplicaState
) -> Plan:
    """A broker can die, and an answer can come, with a replica in any state. Where that changes nothing, it is no
    illegal move to be reported."""
    valid = VALID_PREVIOUS_REPLICA_STATES[target]
    able = tuple(each for each in replicas if context.replica_state(each) in valid)
    yield from replicas_to(able, target)
