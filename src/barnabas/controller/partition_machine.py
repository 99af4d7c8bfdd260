"""Moves partitions between their states: who leads each, and who is told.

    NonExistent → New                the partition is known
    New → Online                     the first state is created: the first online replica leads, all online are in sync
    Online, Offline → Online         an election: read the state, choose (elections.py), write it one epoch higher
    New, Online, Offline → Offline   the leader is gone
    Offline → NonExistent            the partition is forgotten

Only moves to Online write and send. `move` touches nothing. The states it elects on must have been read for this call:
the leader may have changed its ISR since, and a write that is based on an older version comes back to be decided again.
To hand in the context's own leadership instead of reading is safe for the same reason, and saves a read per partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.controller.assignment import target_replicas
from barnabas.controller.context import ControllerContext
from barnabas.controller.decision import (
    CreateState,
    Decision,
    Failure,
    FailureReason,
    Move,
    PartitionDecision,
    PartitionFailure,
    PartitionMove,
    SendLeaderAndIsr,
    StateRead,
    Unreadable,
    UpdateState,
    leadership,
)
from barnabas.controller.elections import (
    Election,
    Strategy,
    elect_for_controlled_shutdown,
    elect_for_reassignment,
    elect_offline,
    elect_preferred,
)
from barnabas.controller.states import VALID_PREVIOUS_PARTITION_STATES, PartitionState
from barnabas.model import LeaderAndIsr, LeaderEpoch, TopicPartition, ZnodeVersion

INITIAL_LEADER_EPOCH = LeaderEpoch(0)
INITIAL_PARTITION_EPOCH = ZnodeVersion(0)


def states_to_read(
    context: ControllerContext, partitions: Iterable[TopicPartition], target: PartitionState
) -> tuple[TopicPartition, ...]:
    """Whose state must be read before `move`: those that are to elect."""
    if target is not PartitionState.ONLINE:
        return ()
    electing = (PartitionState.ONLINE, PartitionState.OFFLINE)
    return tuple(each for each in partitions if context.partition_state(each) in electing)


def configs_to_read(
    context: ControllerContext, states: Mapping[TopicPartition, StateRead]
) -> tuple[str, ...]:
    """The topics that must say whether they allow unclean elections: nobody in some ISR of theirs is online."""
    return tuple(
        dict.fromkeys(
            partition.topic
            for partition, state in sorted(states.items())
            if isinstance(state, LeaderAndIsr)
            and not any(context.is_replica_online(broker, partition) for broker in state.isr)
        )
    )


def move(
    context: ControllerContext,
    partitions: Iterable[TopicPartition],
    target: PartitionState,
    *,
    cause: str,
    strategy: Strategy | None = None,
    states: Mapping[TopicPartition, StateRead] | None = None,
    unclean: Mapping[str, bool] | None = None,
) -> PartitionDecision:
    """What it takes to bring the partitions to `target`.

    `states` has what the registry says of each partition of `states_to_read`; one that is missing has no state there.
    `unclean` has the topics of `configs_to_read`; one that is missing could not be read, and is not electable.
    """
    moves: list[PartitionMove] = []
    failures: list[PartitionFailure] = []
    valid = VALID_PREVIOUS_PARTITION_STATES[target]
    for partition in sorted(set(partitions)):
        before = context.partition_state(partition)
        decided: PartitionMove | tuple[FailureReason, str]
        if before not in valid:
            decided = FailureReason.ILLEGAL_MOVE, f"it is in {before}"
        elif target is not PartitionState.ONLINE:
            decided = Move(item=partition, before=before, after=target, cause=cause)
        elif before is PartitionState.NEW:
            decided = initialise(context, partition, cause)
        else:
            assert strategy is not None, "an election needs a strategy"
            state = (states or {}).get(partition)
            decided = elect(context, partition, state, strategy, unclean or {}, cause)
        if isinstance(decided, Move):
            moves.append(decided)
        else:
            reason, why = decided
            failures.append(
                Failure(
                    item=partition, before=before, after=target, reason=reason, why=why, cause=cause
                )
            )
    return Decision(moves=tuple(moves), failures=tuple(failures))


def initialise(
    context: ControllerContext, partition: TopicPartition, cause: str
) -> PartitionMove | tuple[FailureReason, str]:
    online = context.online_replicas(partition)
    if not online:
        return FailureReason.NO_LIVE_REPLICA, f"assigned to {listed(context.replicas(partition))}"
    state = leadership(
        leader=online[0],
        isr=online,
        leader_epoch=INITIAL_LEADER_EPOCH,
        controller_epoch=context.epoch,
        partition_epoch=INITIAL_PARTITION_EPOCH,
    )
    return Move(
        item=partition,
        before=PartitionState.NEW,
        after=PartitionState.ONLINE,
        cause=cause,
        write=CreateState(partition=partition, state=state),
        leadership=state,
        requests=(SendLeaderAndIsr(brokers=online, partition=partition, is_new=True),),
    )


def elect(
    context: ControllerContext,
    partition: TopicPartition,
    state: StateRead | None,
    strategy: Strategy,
    unclean: Mapping[str, bool],
    cause: str,
) -> PartitionMove | tuple[FailureReason, str]:
    if state is None:
        return FailureReason.STATE_MISSING, "so there is nobody to succeed"
    if isinstance(state, Unreadable):
        return FailureReason.STATE_UNREADABLE, state.why
    if state.controller_epoch > context.epoch:
        return FailureReason.CONTROLLER_MOVED, (
            f"its controller epoch is {state.controller_epoch}, ours {context.epoch}"
        )
    chosen = choose(context, partition, state, strategy, unclean)
    if not isinstance(chosen, Election):
        return chosen
    after = leadership(
        leader=chosen.leader,
        isr=chosen.isr,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        controller_epoch=context.epoch,
        partition_epoch=state.partition_epoch,
        recovering=state.recovering or chosen.unclean,
    )
    return Move(
        item=partition,
        before=context.partition_state(partition),
        after=PartitionState.ONLINE,
        cause=cause,
        write=UpdateState(partition=partition, state=after, expected_version=state.partition_epoch),
        leadership=after,
        requests=(SendLeaderAndIsr(brokers=chosen.recipients, partition=partition, is_new=False),),
        is_unclean=chosen.unclean,
    )


def choose(
    context: ControllerContext,
    partition: TopicPartition,
    state: LeaderAndIsr,
    strategy: Strategy,
    unclean: Mapping[str, bool],
) -> Election | tuple[FailureReason, str]:
    assignment = context.assignment(partition)
    # A replica whose reassignment was cancelled can still be in the ISR: it counts as online, though it cannot win.
    online = tuple(
        broker
        for broker in dict.fromkeys((*assignment.replicas, *state.isr))
        if context.is_replica_online(broker, partition)
    )
    chosen: Election | None
    if strategy is Strategy.REASSIGN:
        chosen = elect_for_reassignment(target_replicas(assignment), state.isr, online)
    elif strategy is Strategy.PREFERRED:
        chosen = elect_preferred(assignment.replicas, state.isr, online)
    elif strategy is Strategy.CONTROLLED_SHUTDOWN:
        registered = tuple(
            broker
            for broker in assignment.replicas
            if context.is_replica_online(broker, partition, include_shutting_down_brokers=True)
        )
        chosen = elect_for_controlled_shutdown(
            assignment.replicas, state.isr, registered, context.shutting_down_broker_ids
        )
    else:
        allowed: bool | None = False
        if not any(broker in online for broker in state.isr):
            allowed = True if strategy is Strategy.OFFLINE_UNCLEAN else unclean.get(partition.topic)
        if allowed is None:
            return FailureReason.CONFIG_UNKNOWN, "and nobody in the ISR is online"
        chosen = elect_offline(assignment.replicas, state.isr, online, unclean_allowed=allowed)
    if chosen is None:
        return FailureReason.NO_ELIGIBLE_LEADER, (
            f"strategy {strategy}, assigned {listed(assignment.replicas)}, "
            f"ISR {listed(state.isr)}, online {listed(online)}"
        )
    return chosen


def apply(context: ControllerContext, committed: PartitionDecision) -> None:
    """Take over what was committed, and no more."""
    for each in committed.moves:
        assert context.partition_state(each.item) is each.before, f"{each.item} has moved meanwhile"
        assert each.before in VALID_PREVIOUS_PARTITION_STATES[each.after], f"{each} is illegal"
        if each.leadership is not None:
            context.set_leadership(each.item, each.leadership)
        context.set_partition_state(each.item, each.after)


def listed(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers)) or "nobody"
