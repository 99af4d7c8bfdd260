"""State machine of replicas: decides which brokers get LeaderAndIsr and StopReplica.

    → New                  LeaderAndIsr with isNew to the replica, if the partition has a leader
    New → Online           nothing to send: the transition of the partition sent LeaderAndIsr
    … → Online             LeaderAndIsr to the replica, which may have missed changes
    … → Offline            StopReplica to the replica; remove it from the ISR; LeaderAndIsr to the other replicas
                           (a partition without a leadership so far: StopReplica and UpdateMetadata only)
    → DeletionStarted      StopReplica with delete
    → DeletionSuccessful, DeletionIneligible, NonExistent      in memory only

Removal from the ISR raises the leader epoch by one. The leader becomes -1 if it was this replica. The last replica
stays in the ISR, because no other has the data. For a replica outside the ISR, nothing is written and the epoch does
not change, so the other brokers ignore the LeaderAndIsr.

If several replicas of a partition go offline, each is removed from the ISR with its own write and leader epoch. All but
the first are `deferred` until the first is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec.structs import replace

from barnabas.controller.assignment import with_replica, without_replica
from barnabas.controller.context import ControllerContext
from barnabas.controller.decision import (
    Decision,
    FailureReason,
    ReplicaDecision,
    ReplicaFailure,
    ReplicaTransition,
    RequestIntent,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    StateReadResult,
    StateTransition,
    TransitionFailure,
    UpdateState,
    check_state,
    shared_leader_and_isr,
)
from barnabas.controller.states import VALID_PREVIOUS_REPLICA_STATES, ReplicaState
from barnabas.model import NO_LEADER, BrokerId, LeaderAndIsr, LeaderEpoch, Replica, TopicPartition


def partitions_for_isr_removal(
    context: ControllerContext, replicas: Iterable[Replica], target: ReplicaState
) -> tuple[TopicPartition, ...]:
    """Return the partitions with a replica to remove from the ISR. The caller passes their states to the decision."""
    if target is not ReplicaState.OFFLINE:
        return ()
    partitions = dict.fromkeys(replica.partition for replica in replicas)
    return tuple(each for each in partitions if each in context.leadership)


def decide_replica_transitions(
    context: ControllerContext,
    replicas: Iterable[Replica],
    target: ReplicaState,
    *,
    cause: str,
    states: Mapping[TopicPartition, StateReadResult] | None = None,
) -> ReplicaDecision:
    """Decide how to move the replicas to `target`.

    `states` are those of the partitions from `partitions_for_isr_removal`. A missing one has no state in the registry.
    """
    transitions: list[ReplicaTransition] = []
    failures: list[ReplicaFailure] = []
    deferred: list[Replica] = []
    stops: list[SendStopReplica] = []
    in_transition: set[TopicPartition] = set()
    valid = VALID_PREVIOUS_REPLICA_STATES[target]
    for replica in sorted(set(replicas), key=lambda each: (each.broker, each.partition)):
        before = context.replica_state(replica)
        decided: ReplicaTransition | tuple[FailureReason, str] | None
        if before not in valid:
            decided = FailureReason.ILLEGAL_TRANSITION, f"the state is {before}"
        elif target is ReplicaState.NEW:
            decided = decide_new(context, replica, before, cause)
        elif target is ReplicaState.ONLINE:
            decided = decide_online(context, replica, before, cause)
        elif target is ReplicaState.OFFLINE:
            if replica.partition in in_transition:
                deferred.append(replica)
                continue
            state = (states or {}).get(replica.partition)
            decided = decide_offline(context, replica, before, state, cause)
            if isinstance(decided, StateTransition):
                in_transition.add(replica.partition)
            else:
                stops.append(stop_replica(context, replica, delete=False))
        else:
            is_deleting = target is ReplicaState.DELETION_STARTED
            stopping = (stop_replica(context, replica, delete=True),) if is_deleting else ()
            decided = StateTransition(replica, before, target, cause, stops=stopping)
        if isinstance(decided, StateTransition):
            transitions.append(decided)
        elif decided is not None:
            failures.append(TransitionFailure(replica, before, target, *decided, cause))
    return Decision(
        transitions=tuple(transitions),
        failures=tuple(failures),
        deferred=tuple(deferred),
        stops=tuple(stops),
    )


def decide_new(
    context: ControllerContext, replica: Replica, before: ReplicaState, cause: str
) -> ReplicaTransition | tuple[FailureReason, str]:
    leadership = context.leadership.get(replica.partition)
    if leadership is not None and leadership.leader == replica.broker:
        return FailureReason.REPLICA_IS_LEADER, f"leader epoch {leadership.leader_epoch}"
    requests = () if leadership is None else (leader_and_isr_to(replica, is_new=True),)
    return StateTransition(replica, before, ReplicaState.NEW, cause, requests=requests)


def decide_online(
    context: ControllerContext, replica: Replica, before: ReplicaState, cause: str
) -> ReplicaTransition:
    requests: tuple[RequestIntent, ...] = ()
    if before is not ReplicaState.NEW and replica.partition in context.leadership:
        requests = (leader_and_isr_to(replica, is_new=False),)
    return StateTransition(replica, before, ReplicaState.ONLINE, cause, requests=requests)


def decide_offline(
    context: ControllerContext,
    replica: Replica,
    before: ReplicaState,
    state: StateReadResult | None,
    cause: str,
) -> ReplicaTransition | tuple[FailureReason, str] | None:
    """Stop the replica and remove it from the ISR.

    Returns None if the topic is being deleted and its state znode is gone: there is nothing to do.
    """
    partition, after = replica.partition, ReplicaState.OFFLINE
    deleting = context.is_topic_queued_for_deletion(partition.topic)
    stops = (stop_replica(context, replica, delete=False),)
    if partition not in context.leadership:
        updates = (SendUpdateMetadata(partitions=(partition,)),)
        return StateTransition(replica, before, after, cause, requests=updates, stops=stops)
    if state is None and deleting:
        return None
    if (problem := check_state(state, context.epoch)) is not None:
        return problem
    assert isinstance(state, LeaderAndIsr)
    leadership = remove_from_isr(context, state, replica.broker)
    others = without_broker(context.replicas(partition), replica.broker)
    to_others = SendLeaderAndIsr(brokers=others, partition=partition, is_new=False)
    write = UpdateState(
        partition=partition, state=leadership, expected_version=state.partition_epoch
    )
    return StateTransition(
        item=replica,
        before=before,
        after=after,
        cause=cause,
        write=write if replica.broker in state.isr else None,
        leadership=leadership,
        requests=() if deleting else (to_others,),
        stops=stops,
    )


def remove_from_isr(
    context: ControllerContext, state: LeaderAndIsr, broker: BrokerId
) -> LeaderAndIsr:
    """Return the state after the removal of a broker from the ISR."""
    if broker not in state.isr:
        return replace(state, controller_epoch=context.epoch)
    is_last = len(state.isr) == 1
    return shared_leader_and_isr(
        leader=NO_LEADER if state.leader == broker else state.leader,
        isr=state.isr if is_last else without_broker(state.isr, broker),
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        controller_epoch=context.epoch,
        partition_epoch=state.partition_epoch,
        recovering=state.recovering,
    )


@lru_cache(maxsize=4096)
def without_broker(members: tuple[BrokerId, ...], broker: BrokerId) -> tuple[BrokerId, ...]:
    """Return the tuple without this broker. Cached: thousands of partitions share the same few tuples."""
    return tuple(each for each in members if each != broker)


def leader_and_isr_to(replica: Replica, *, is_new: bool) -> SendLeaderAndIsr:
    return SendLeaderAndIsr(brokers=(replica.broker,), partition=replica.partition, is_new=is_new)


def stop_replica(context: ControllerContext, replica: Replica, *, delete: bool) -> SendStopReplica:
    return SendStopReplica(
        broker=replica.broker,
        partition=replica.partition,
        leader_epoch=context.leader_epoch(replica.partition),
        delete_partition=delete,
    )


def apply_replica_transitions(context: ControllerContext, committed: ReplicaDecision) -> None:
    """Apply a committed decision to the context."""
    for each in committed.transitions:
        replica = each.item
        assert context.replica_state(replica) is each.before, f"{replica} is not in {each.before}"
        assert each.before in VALID_PREVIOUS_REPLICA_STATES[each.after], f"{each} is illegal"
        if each.leadership is not None:
            context.set_leadership(replica.partition, each.leadership)
        assignment = context.assignment(replica.partition)
        if each.after is ReplicaState.NON_EXISTENT:
            context.set_assignment(replica.partition, without_replica(assignment, replica.broker))
        elif (
            each.after is ReplicaState.ONLINE
            and each.before is ReplicaState.NEW
            and replica.broker not in assignment.replicas
        ):
            context.set_assignment(replica.partition, with_replica(assignment, replica.broker))
        context.set_replica_state(replica, each.after)
