"""Plans of the controller: the steps after a takeover, and after changes of brokers or partitions.

The order matters:

- UpdateMetadata is sent before LeaderAndIsr: a broker does not follow a leader that it does not know.
- Elections come before replicas leave the ISR: so the failure of a leader raises the leader epoch by one, not by two.
- A new controller does the opposite, replicas first. If a leader failed together with the old controller, the leader
  epoch is raised by two.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import NamedTuple

from barnabas.controller.assignment import is_being_reassigned, target_replicas
from barnabas.controller.context import ControllerContext, Partitions
from barnabas.controller.decision import SendUpdateMetadata
from barnabas.controller.deletion import fail_replica_deletion, resume_deletions
from barnabas.controller.elections import Strategy
from barnabas.controller.reassignment import continue_reassignments, delete_replicas
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.controller.steps import (
    DelayRequests,
    MovePartitions,
    Plan,
    SendDelayedRequests,
    StartSenders,
    Step,
    StopSenders,
    WatchBrokers,
    move_replicas_to,
)
from barnabas.errors import RegistryError
from barnabas.metadata.znodes import TopicAssignment
from barnabas.model import Broker, BrokerEpoch, BrokerId, LeaderAndIsr, Replica, TopicPartition

# ---- takeover ---------------------------------------------------------------------------------------------


class Registration(NamedTuple):
    """A registered broker."""

    broker: Broker
    epoch: BrokerEpoch


def load_context(
    context: ControllerContext,
    *,
    brokers: Mapping[BrokerId, Registration],
    topics: Mapping[str, TopicAssignment],
    states: Mapping[TopicPartition, LeaderAndIsr],
) -> tuple[RegistryError, ...]:
    """Fill an empty context with the contents of the registry.

    The registry does not store which brokers are shutting down.

    Returns the errors of topics that were left out.
    """
    errors: list[RegistryError] = []
    for _, registration in sorted(brokers.items()):
        context.set_broker(registration.broker, registration.epoch)
    for topic, assignment in sorted(topics.items()):
        try:
            context.add_topic(topic, assignment.topic_id)
        except RegistryError as error:
            errors.append(error)
            continue
        for index, replicas in sorted(assignment.partitions.items()):
            partition = TopicPartition(topic, index)
            context.set_assignment(partition, replicas)
            if is_being_reassigned(replicas):
                context.partitions_being_reassigned[partition] = None
            state = states.get(partition)
            if state is not None:
                context.set_leadership(partition, state)
    return tuple(errors)


def find_unnoticed_restarts(
    brokers: Mapping[BrokerId, Registration],
    states: Mapping[TopicPartition, LeaderAndIsr],
    last_zxids: Mapping[TopicPartition, int],
) -> frozenset[BrokerId]:
    """Return the brokers that restarted while there was no controller.

    After a power failure, such a broker may lack the end of its logs. If it stayed leader, its followers would truncate
    those records. So it is treated as failed first.

    Example: broker 2 leads with ISR 2,3. The state was written by transaction 70. Broker 3 registered with transaction
    40, broker 2 with 90: broker 2 has restarted since.

    A broker is returned only if another registered broker of the ISR did not restart. If all restarted, as when a
    cluster starts, no replica is known to have more records than the others.
    """
    newest_epoch = max((each.epoch for each in brokers.values()), default=0)
    restarted: set[BrokerId] = set()
    for partition, state in states.items():
        written = last_zxids[partition]
        if written > newest_epoch or len(state.isr) < 2:
            continue
        online = [broker for broker in state.isr if broker in brokers]
        restarted_since = [broker for broker in online if brokers[broker].epoch > written]
        if len(restarted_since) < len(online):
            restarted.update(restarted_since)
    return frozenset(restarted)


def queue_deletions_in_progress(context: ControllerContext, marked: Iterable[str]) -> None:
    """Queue the topics with a delete marker. Those with an offline replica become ineligible."""
    queued = sorted(marked)
    context.queue_topic_deletion(queued)
    context.mark_ineligible_for_deletion(
        topic for topic in queued if has_offline_replica(context, topic)
    )


def has_offline_replica(context: ControllerContext, topic: str) -> bool:
    return any(
        not context.is_replica_online(replica.broker, replica.partition)
        for replica in context.replicas_of(context.partitions_of(topic))
    )


def plan_failover(context: ControllerContext) -> Plan:
    """Set the initial states of both state machines, elect leaders and resume unfinished topic deletions."""
    # With all partitions: a broker that has just started would otherwise report all topics as unknown.
    yield SendUpdateMetadata(partitions=context.partitions_with_leaders)
    online, offline = context.online_and_offline_replicas()
    # Set directly: these are initial states, not transitions.
    for replica in online:
        context.set_replica_state(replica, ReplicaState.ONLINE)
    for replica in offline:
        context.set_replica_state(replica, ReplicaState.DELETION_INELIGIBLE)
    # The state of a partition may change several times in the next steps. Brokers get only the last one.
    unassigned = unassigned_in_sync_replicas(context)
    changing = tuple(dict.fromkeys(replica.partition for replica in (*offline, *unassigned)))
    yield DelayRequests(partitions=changing)
    # Before offline replicas leave the ISR: the last member of the ISR must be an assigned replica.
    yield from delete_replicas(context, unassigned)
    yield from move_replicas_to(online, ReplicaState.ONLINE)
    yield from move_replicas_to(offline, ReplicaState.OFFLINE)
    for partition in context.all_partitions:
        context.set_partition_state(partition, first_partition_state(context, partition))
    yield from plan_elections(context)
    yield SendDelayedRequests()
    yield from resume_deletions(context)


def unassigned_in_sync_replicas(context: ControllerContext) -> tuple[Replica, ...]:
    """Return the replicas that the last controller unassigned, but did not remove from the ISR before it failed.

    Their state becomes Online. Replicas without which no assigned replica is in sync are not returned.
    """
    found: list[Replica] = []
    for topic, assignments in context.assignments.items():
        if context.is_topic_queued_for_deletion(topic):
            continue
        for partition, assignment in assignments.items():
            leadership, assigned = context.leadership.get(partition), assignment.replicas
            if leadership is None or leadership.isr == assigned:
                continue
            extra = [broker for broker in leadership.isr if broker not in assigned]
            if len(extra) < len(leadership.isr):
                found += (Replica(partition, broker) for broker in extra)
    for replica in found:
        context.set_replica_state(replica, ReplicaState.ONLINE)
    return tuple(found)


def first_partition_state(context: ControllerContext, partition: TopicPartition) -> PartitionState:
    leadership = context.leadership.get(partition)
    if leadership is None:
        return PartitionState.NEW
    if context.is_replica_online(leadership.leader, partition):
        return PartitionState.ONLINE
    return PartitionState.OFFLINE


# ---- brokers ----------------------------------------------------------------------------------------------


def plan_broker_changes(
    context: ControllerContext, registered: Mapping[BrokerId, Registration]
) -> Plan:
    """Handle new, restarted and failed brokers. A larger broker epoch means that the broker has restarted."""
    epochs = context.broker_epochs
    new = tuple(sorted(registered.keys() - epochs.keys()))
    failed = tuple(sorted(epochs.keys() - registered.keys()))
    bounced = tuple(
        broker
        for broker in sorted(registered.keys() & epochs.keys())
        if registered[broker].epoch > epochs[broker]
    )
    if new:
        yield StartSenders(brokers=new)
    if bounced:
        yield StopSenders(brokers=bounced)
        yield StartSenders(brokers=bounced)
    if failed:
        yield StopSenders(brokers=failed)
    if new:
        yield from plan_broker_startup(context, new, registered)
    if bounced:
        yield from plan_broker_failure(context, bounced)
        yield from plan_broker_startup(context, bounced, registered)
    if failed:
        yield from plan_broker_failure(context, failed)


def plan_broker_startup(
    context: ControllerContext,
    brokers: tuple[BrokerId, ...],
    registered: Mapping[BrokerId, Registration],
) -> Plan:
    """Handle brokers that registered: send them the metadata and their replicas, and elect leaders."""
    others = tuple(b for b in context.live_or_shutting_down_broker_ids if b not in brokers)
    for broker in brokers:
        context.set_broker(registered[broker].broker, registered[broker].epoch)
        context.replicas_on_offline_dirs.pop(broker, None)
    if others:
        yield SendUpdateMetadata(brokers=others)
    yield SendUpdateMetadata(brokers=brokers, partitions=context.partitions_with_leaders)
    replicas = context.replicas_on_brokers(brokers)
    yield from move_replicas_to(replicas, ReplicaState.ONLINE)
    yield from plan_elections(context)
    reassigned = tuple(
        partition
        for partition in context.partitions_being_reassigned
        if any(b in brokers for b in target_replicas(context.assignment(partition)))
    )
    yield from continue_reassignments(context, reassigned)
    deleting = {each.partition.topic for each in replicas} & context.topics_to_be_deleted.keys()
    if deleting:
        yield from resume_deletions(context, sorted(deleting))
    yield WatchBrokers(brokers=brokers)


def plan_broker_failure(context: ControllerContext, brokers: tuple[BrokerId, ...]) -> Plan:
    """Handle brokers that are no longer registered."""
    context.remove_brokers(brokers)
    for broker in brokers:
        context.replicas_on_offline_dirs.pop(broker, None)
        context.shutting_down_broker_ids.discard(broker)
    yield from plan_offline_replicas(context, context.replicas_on_brokers(brokers))


def plan_offline_replicas(context: ControllerContext, replicas: tuple[Replica, ...]) -> Plan:
    """Handle replicas whose broker or log directory has failed."""
    deleting = tuple(
        each for each in replicas if context.is_topic_queued_for_deletion(each.partition.topic)
    )
    staying = tuple(
        each for each in replicas if not context.is_topic_queued_for_deletion(each.partition.topic)
    )
    leaderless = context.partitions_with_offline_leader
    if leaderless:
        yield MovePartitions(partitions=leaderless, target=PartitionState.OFFLINE)
    elected = yield from plan_elections(context)
    yield from move_replicas_to(staying, ReplicaState.OFFLINE)
    yield from fail_replica_deletion(context, deleting)
    if not staying and not elected:
        # The steps above sent nothing, but all brokers need the new list of brokers.
        yield SendUpdateMetadata()


# ---- partitions -------------------------------------------------------------------------------------------


def plan_new_partitions(context: ControllerContext, partitions: Partitions) -> Plan:
    """Handle the partitions of a new topic, or added partitions. Their assignments are in the context."""
    if not partitions:
        return
    yield MovePartitions(partitions=partitions, target=PartitionState.NEW)
    yield from move_replicas_to(context.replicas_of(partitions), ReplicaState.NEW)
    yield MovePartitions(
        partitions=partitions, target=PartitionState.ONLINE, strategy=Strategy.OFFLINE
    )
    yield from move_replicas_to(context.replicas_of(partitions), ReplicaState.ONLINE)


def plan_elections(
    context: ControllerContext, topic: str | None = None
) -> Generator[Step, int | None, int]:
    """Elect leaders for all partitions without one, or for those of a topic. Returns the number of elections."""
    waiting = context.partitions_in_states(PartitionState.NEW, PartitionState.OFFLINE)
    waiting = tuple(
        partition
        for partition in waiting
        if topic in (None, partition.topic)
        and not context.is_topic_queued_for_deletion(partition.topic)
    )
    if not waiting:
        return 0
    elected = yield MovePartitions(
        partitions=waiting, target=PartitionState.ONLINE, strategy=Strategy.OFFLINE
    )
    return elected or 0


def plan_allowed_elections(context: ControllerContext, topic: str | None = None) -> Plan:
    """Elect leaders after a setting has allowed unclean elections, for all topics or for one."""
    yield from plan_elections(context, topic)


# ---- leader balance ---------------------------------------------------------------------------------------


def find_unbalanced_partitions(context: ControllerContext, *, percentage: int) -> Partitions:
    """Return the partitions that need a preferred leader election.

    The preferred leader is the first assigned replica. A broker that was offline has lost its leaderships to other
    replicas. It gets them back when it is in sync again and other brokers lead more than `percentage` percent of the
    partitions that prefer it.
    """
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
