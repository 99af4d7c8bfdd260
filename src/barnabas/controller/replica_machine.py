"""Moves replicas between their states: what each broker is told to hold, follow, stop and delete.

    → New                  it is to follow the leader, if there is one: LeaderAndIsr with isNew
    New → Online           nothing to do; the partition's own move has told it all
    … → Online             it may have missed something: LeaderAndIsr with what is known
    … → Offline            StopReplica, out of the ISR, and the others are told; no leader yet: metadata only
    → DeletionStarted      StopReplica with delete
    → DeletionSuccessful, DeletionIneligible, NonExistent      memory only

Out of the ISR means: the leader is -1 if it was this replica, the epoch is one higher, and the ISR is smaller, except
that the last member stays in, since nobody else has the data. A replica that was not in the ISR changes nothing: no
write, the same epoch, and brokers ignore what they are told.

Two replicas of one partition leave its ISR one after the other, each with a write and an epoch of its own. The second
is `deferred`, and decided when the first is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec.structs import replace

from barnabas.controller.assignment import with_replica, without_replica
from barnabas.controller.context import ControllerContext
from barnabas.controller.decision import (
    Decision,
    Failure,
    FailureReason,
    Move,
    ReplicaDecision,
    ReplicaFailure,
    ReplicaMove,
    RequestIntent,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    StateRead,
    Unreadable,
    UpdateState,
    leadership,
)
from barnabas.controller.states import (
    VALID_PREVIOUS_REPLICA_STATES,
    ReplicaState,
)
from barnabas.model import NO_LEADER, BrokerId, LeaderAndIsr, LeaderEpoch, Replica, TopicPartition


def states_to_read(
    context: ControllerContext, replicas: Iterable[Replica], target: ReplicaState
) -> tuple[TopicPartition, ...]:
    """Whose state must be read before `move`: a replica is to leave the ISR, and there is one."""
    if target is not ReplicaState.OFFLINE:
        return ()
    partitions = dict.fromkeys(replica.partition for replica in replicas)
    return tuple(each for each in partitions if each in context.leadership)


def move(
    context: ControllerContext,
    replicas: Iterable[Replica],
    target: ReplicaState,
    *,
    cause: str,
    states: Mapping[TopicPartition, StateRead] | None = None,
) -> ReplicaDecision:
    """What it takes to bring the replicas to `target`.

    `states` has what the registry says of each partition of `states_to_read`; one that is missing has no state there.
    """
    moves: list[ReplicaMove] = []
    failures: list[ReplicaFailure] = []
    deferred: list[Replica] = []
    stops: list[SendStopReplica] = []
    writing: set[TopicPartition] = set()
    valid = VALID_PREVIOUS_REPLICA_STATES[target]
    for replica in sorted(set(replicas), key=lambda each: (each.broker, each.partition)):
        before = context.replica_state(replica)
        decided: ReplicaMove | tuple[FailureReason, str] | None
        if before not in valid:
            decided = FailureReason.ILLEGAL_MOVE, f"it is in {before}"
        elif target is ReplicaState.NEW:
            decided = begin(context, replica, before, cause)
        elif target is ReplicaState.ONLINE:
            decided = go_online(context, replica, before, cause)
        elif target is ReplicaState.OFFLINE:
            if replica.partition in writing:
                deferred.append(replica)
                continue
            state = (states or {}).get(replica.partition)
            decided = go_offline(context, replica, before, state, cause)
            if isinstance(decided, Move):
                writing.add(replica.partition)
            else:
                stops.append(stop(context, replica, delete=False))
        else:
            stopping = target is ReplicaState.DELETION_STARTED
            decided = Move(
                item=replica,
                before=before,
                after=target,
                cause=cause,
                stops=(stop(context, replica, delete=True),) if stopping else (),
            )
        if isinstance(decided, Move):
            moves.append(decided)
        elif decided is not None:
            reason, why = decided
            failures.append(
                Failure(
                    item=replica, before=before, after=target, reason=reason, why=why, cause=cause
                )
            )
    return Decision(
        moves=tuple(moves),
        failures=tuple(failures),
        deferred=tuple(deferred),
        stops=tuple(stops),
    )


def begin(
    context: ControllerContext, replica: Replica, before: ReplicaState, cause: str
) -> ReplicaMove | tuple[FailureReason, str]:
    known = context.leadership.get(replica.partition)
    if known is not None and known.leader == replica.broker:
        return FailureReason.REPLICA_IS_LEADER, f"with leader epoch {known.leader_epoch}"
    told = () if known is None else (told_alone(replica, is_new=True),)
    return Move(item=replica, before=before, after=ReplicaState.NEW, cause=cause, requests=told)


def go_online(
    context: ControllerContext, replica: Replica, before: ReplicaState, cause: str
) -> ReplicaMove:
    told: tuple[RequestIntent, ...] = ()
    if before is not ReplicaState.NEW and replica.partition in context.leadership:
        told = (told_alone(replica, is_new=False),)
    return Move(item=replica, before=before, after=ReplicaState.ONLINE, cause=cause, requests=told)


def go_offline(
    context: ControllerContext,
    replica: Replica,
    before: ReplicaState,
    state: StateRead | None,
    cause: str,
) -> ReplicaMove | tuple[FailureReason, str] | None:
    """None where the topic is being deleted and its state is gone already: nothing to do, and nothing wrong."""
    partition = replica.partition
    deleting = context.is_topic_queued_for_deletion(partition.topic)
    stops = (stop(context, replica, delete=False),)
    if partition not in context.leadership:
        return Move(
            item=replica,
            before=before,
            after=ReplicaState.OFFLINE,
            cause=cause,
            requests=(SendUpdateMetadata(partitions=(partition,)),),
            stops=stops,
        )
    if state is None:
        return None if deleting else (FailureReason.STATE_MISSING, "it cannot leave the ISR")
    if isinstance(state, Unreadable):
        return FailureReason.STATE_UNREADABLE, state.why
    if state.controller_epoch > context.epoch:
        return FailureReason.CONTROLLER_MOVED, (
            f"its controller epoch is {state.controller_epoch}, ours {context.epoch}"
        )
    after = without_member(context, state, replica.broker)
    others = without(context.replicas(partition), replica.broker)
    told = SendLeaderAndIsr(brokers=others, partition=partition, is_new=False)
    write = UpdateState(partition=partition, state=after, expected_version=state.partition_epoch)
    return Move(
        item=replica,
        before=before,
        after=ReplicaState.OFFLINE,
        cause=cause,
        write=write if replica.broker in state.isr else None,
        leadership=after,
        requests=() if deleting else (told,),
        stops=stops,
    )


def without_member(
    context: ControllerContext, state: LeaderAndIsr, broker: BrokerId
) -> LeaderAndIsr:
    if broker not in state.isr:
        return replace(state, controller_epoch=context.epoch)
    alone = len(state.isr) == 1
    return leadership(
        leader=NO_LEADER if state.leader == broker else state.leader,
        isr=state.isr if alone else without(state.isr, broker),
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        controller_epoch=context.epoch,
        partition_epoch=state.partition_epoch,
        recovering=state.recovering,
    )


@lru_cache(maxsize=4096)
def without(members: tuple[BrokerId, ...], broker: BrokerId) -> tuple[BrokerId, ...]:
    """Thousands of partitions have the same members, and share what is left of them."""
    return tuple(each for each in members if each != broker)


def told_alone(replica: Replica, *, is_new: bool) -> SendLeaderAndIsr:
    return SendLeaderAndIsr(brokers=(replica.broker,), partition=replica.partition, is_new=is_new)


def stop(context: ControllerContext, replica: Replica, *, delete: bool) -> SendStopReplica:
    return SendStopReplica(
        broker=replica.broker,
        partition=replica.partition,
        leader_epoch=context.leader_epoch(replica.partition),
        delete_partition=delete,
    )


def apply(context: ControllerContext, committed: ReplicaDecision) -> None:
    """Take over what was committed, and no more."""
    for each in committed.moves:
        replica = each.item
        assert context.replica_state(replica) is each.before, f"{replica} has moved meanwhile"
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
