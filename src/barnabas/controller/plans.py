"""What the controller does, in which order, when it takes over and when brokers or partitions come and go.

The orders are the point. Metadata goes out before LeaderAndIsr, since a broker refuses to follow a leader it has never
heard of. Elections come before replicas leave the ISR, so that the death of a leader costs one epoch and not two. Only
a new controller has to go the other way round: it brings replicas in order first, and a leader that died together with
the old controller costs two.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import NamedTuple

from barnabas.controller.assignment import target_replicas
from barnabas.controller.context import ControllerContext
from barnabas.controller.decision import SendUpdateMetadata
from barnabas.controller.deletion import fail_replica_deletion, resume_deletions
from barnabas.controller.elections import Strategy
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.controller.steps import (
    HoldBack,
    MovePartitions,
    Plan,
    ResumeReassignments,
    StartSenders,
    Step,
    StopSenders,
    TellHeldBack,
    UnwatchBrokers,
    WatchBrokers,
    replicas_to,
)
from barnabas.errors import RegistryError
from barnabas.metadata.znodes import TopicAssignment
from barnabas.model import Broker, BrokerEpoch, BrokerId, LeaderAndIsr, Replica, TopicPartition

# ---- taking over ------------------------------------------------------------------------------------------


class Registration(NamedTuple):
    broker: Broker
    epoch: BrokerEpoch


def load(
    context: ControllerContext,
    *,
    brokers: Mapping[BrokerId, Registration],
    topics: Mapping[str, TopicAssignment],
    states: Mapping[TopicPartition, LeaderAndIsr],
) -> tuple[RegistryError, ...]:
    """Fill a fresh context with what the registry says. Who was shutting down is not in it, and is forgotten.

    Reassignments that the topics carry are not continued: `replicas` counts as the assignment, with the brokers that
    were being added and removed.

    Returns what was wrong with the topics it had to leave out.
    """
    wrong: list[RegistryError] = []
    for _, registration in sorted(brokers.items()):
        context.set_broker(registration.broker, registration.epoch)
    for topic, assignment in sorted(topics.items()):
        try:
            context.add_topic(topic, assignment.topic_id)
        except RegistryError as error:
            wrong.append(error)
            continue
        for index, replicas in sorted(assignment.partitions.items()):
            partition = TopicPartition(topic, index)
            context.set_assignment(partition, replicas)
            state = states.get(partition)
            if state is not None:
                context.set_leadership(partition, state)
    return tuple(wrong)


def returned_unnoticed(
    brokers: Mapping[BrokerId, Registration],
    states: Mapping[TopicPartition, LeaderAndIsr],
    written_at: Mapping[TopicPartition, int],
) -> frozenset[BrokerId]:
    """Brokers that went and came back while nobody was in charge. They may have lost the end of their logs with the
    power; were they to lead on, it would be lost everywhere.

    Broker 2 leads, ISR 2,3, written by transaction 70; 3 registered with 40, 2 with 90: that was another life of 2.

    Only where another member of the ISR has been there all the time. If all have come back, as when a cluster is
    started, nobody holds more than the others.
    """
    newest = max((each.epoch for each in brokers.values()), default=0)
    returned: set[BrokerId] = set()
    for partition, state in states.items():
        written = written_at[partition]
        if written > newest or len(state.isr) < 2:
            continue
        there = [broker for broker in state.isr if broker in brokers]
        late = [broker for broker in there if brokers[broker].epoch > written]
        if len(late) < len(there):
            returned.update(late)
    return frozenset(returned)


def queue_deletions_in_progress(context: ControllerContext, marked: Iterable[str]) -> None:
    """Topics with a delete marker, known or not. Those with an offline replica or under reassignment have to wait."""
    queued = sorted(marked)
    context.queue_topic_deletion(queued)
    moving = {partition.topic for partition in context.partitions_being_reassigned}
    context.mark_ineligible_for_deletion(
        topic for topic in queued if topic in moving or has_offline_replica(context, topic)
    )


def has_offline_replica(context: ControllerContext, topic: str) -> bool:
    return any(
        not context.is_replica_online(replica.broker, replica.partition)
        for replica in context.replicas_of(context.partitions_of(topic))
    )


def failover(context: ControllerContext) -> Plan:
    """From the full context to both state machines running, and what the controller before left unfinished resumed."""
    # With the partitions: a broker that has just started serves once it knows the brokers, and would deny all topics.
    yield SendUpdateMetadata(partitions=context.partitions_with_leaders)
    online, offline = context.online_and_offline_replicas()
    # Set directly, since nobody has asked for it: states are not kept, and this is only where they are taken up again.
    for replica in online:
        context.set_replica_state(replica, ReplicaState.ONLINE)
    for replica in offline:
        context.set_replica_state(replica, ReplicaState.DELETION_INELIGIBLE)
    # A broker that died with its controller: what changes in up to three steps is told once.
    changing = tuple(dict.fromkeys(replica.partition for replica in offline))
    yield HoldBack(partitions=changing)
    yield from replicas_to(online, ReplicaState.ONLINE)
    yield from replicas_to(offline, ReplicaState.OFFLINE)
    for partition in context.all_partitions:
        context.set_partition_state(partition, first_partition_state(context, partition))
    yield from bring_online(context)
    yield TellHeldBack()
    moving = tuple(context.partitions_being_reassigned)
    if moving:
        yield ResumeReassignments(partitions=moving)
    yield from resume_deletions(context)


def first_partition_state(context: ControllerContext, partition: TopicPartition) -> PartitionState:
    known = context.leadership.get(partition)
    if known is None:
        return PartitionState.NEW
    if context.is_replica_online(known.leader, partition):
        return PartitionState.ONLINE
    return PartitionState.OFFLINE


# ---- brokers ----------------------------------------------------------------------------------------------


def brokers_changed(
    context: ControllerContext, registered: Mapping[BrokerId, Registration]
) -> Plan:
    """Compare who is registered with who was known. A larger epoch is a broker that went and came back unnoticed."""
    known = context.broker_epochs
    new = tuple(sorted(registered.keys() - known.keys()))
    dead = tuple(sorted(known.keys() - registered.keys()))
    bounced = tuple(
        broker
        for broker in sorted(registered.keys() & known.keys())
        if registered[broker].epoch > known[broker]
    )
    if new:
        yield StartSenders(brokers=new)
    if bounced:
        yield StopSenders(brokers=bounced)
        yield StartSenders(brokers=bounced)
    if dead:
        yield StopSenders(brokers=dead)
    if new:
        yield from broker_startup(context, new, registered)
    if bounced:
        yield from broker_failure(context, bounced)
        yield from broker_startup(context, bounced, registered)
    if dead:
        yield from broker_failure(context, dead)


def broker_startup(
    context: ControllerContext,
    brokers: tuple[BrokerId, ...],
    registered: Mapping[BrokerId, Registration],
) -> Plan:
    before = tuple(b for b in context.live_or_shutting_down_broker_ids if b not in brokers)
    for broker in brokers:
        context.set_broker(registered[broker].broker, registered[broker].epoch)
        context.replicas_on_offline_dirs.pop(broker, None)
    if before:
        yield SendUpdateMetadata(brokers=before)
    yield SendUpdateMetadata(brokers=brokers, partitions=context.partitions_with_leaders)
    held = context.replicas_on_brokers(brokers)
    yield from replicas_to(held, ReplicaState.ONLINE)
    yield from bring_online(context)
    arriving = tuple(
        partition
        for partition in context.partitions_being_reassigned
        if any(b in brokers for b in target_replicas(context.assignment(partition)))
    )
    if arriving:
        yield ResumeReassignments(partitions=arriving)
    deleting = {replica.partition.topic for replica in held} & context.topics_to_be_deleted.keys()
    if deleting:
        yield from resume_deletions(context, sorted(deleting))
    yield WatchBrokers(brokers=brokers)


def broker_failure(context: ControllerContext, brokers: tuple[BrokerId, ...]) -> Plan:
    context.remove_brokers(brokers)
    for broker in brokers:
        context.replicas_on_offline_dirs.pop(broker, None)
        context.shutting_down_broker_ids.discard(broker)
    yield from replicas_become_offline(context, context.replicas_on_brokers(brokers))
    yield UnwatchBrokers(brokers=brokers)


def replicas_become_offline(context: ControllerContext, replicas: tuple[Replica, ...]) -> Plan:
    """Their broker is gone, or the disk under them."""
    deleting = tuple(
        each for each in replicas if context.is_topic_queued_for_deletion(each.partition.topic)
    )
    staying = tuple(
        each for each in replicas if not context.is_topic_queued_for_deletion(each.partition.topic)
    )
    leaderless = context.partitions_with_offline_leader
    if leaderless:
        yield MovePartitions(partitions=leaderless, target=PartitionState.OFFLINE)
    elected = yield from bring_online(context)
    yield from replicas_to(staying, ReplicaState.OFFLINE)
    yield from fail_replica_deletion(context, deleting)
    if not staying and not elected:
        # Nothing above has sent anything, and the brokers must hear that somebody is gone.
        yield SendUpdateMetadata()


# ---- partitions -------------------------------------------------------------------------------------------


def new_partitions(context: ControllerContext, partitions: tuple[TopicPartition, ...]) -> Plan:
    """A topic was created, or has grown. Their assignments are in the context."""
    if not partitions:
        return
    yield MovePartitions(partitions=partitions, target=PartitionState.NEW)
    yield from replicas_to(context.replicas_of(partitions), ReplicaState.NEW)
    yield MovePartitions(
        partitions=partitions, target=PartitionState.ONLINE, strategy=Strategy.OFFLINE
    )
    yield from replicas_to(context.replicas_of(partitions), ReplicaState.ONLINE)


def bring_online(
    context: ControllerContext, topic: str | None = None
) -> Generator[Step, int | None, int]:
    """Try every partition that has no leader, of all topics or of one, and tell how many elections were won."""
    waiting = context.partitions_in_states(PartitionState.NEW, PartitionState.OFFLINE, topic=topic)
    waiting = tuple(p for p in waiting if not context.is_topic_queued_for_deletion(p.topic))
    if not waiting:
        return 0
    elected = yield MovePartitions(
        partitions=waiting, target=PartitionState.ONLINE, strategy=Strategy.OFFLINE
    )
    return elected or 0
