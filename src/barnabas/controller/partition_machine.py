"""State machine of partitions: decides leaders, and which brokers get LeaderAndIsr.

    NonExistent → New                the partition becomes known
    New → Online                     create the first state: leader = first online replica, ISR = all online replicas
    Online, Offline → Online         an election (elections.py): write the state with the next leader epoch
    New, Online, Offline → Offline   the leader is gone
    Offline → NonExistent            the partition is forgotten

Only transitions to Online write and send. So does `decide_epoch_raises`, which changes no state. The decide functions
change nothing themselves. The caller passes the current states, from the context or from the registry. A stale state
does no harm: its write fails with a version conflict, and the partition is decided again. So the context is tried
first, which saves a read per partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from barnabas.controller.assignment import origin_replicas, target_replicas
from barnabas.controller.context import ControllerContext
from barnabas.controller.decision import (
    CreateState,
    Decision,
    FailureReason,
    PartitionDecision,
    PartitionFailure,
    PartitionTransition,
    SendLeaderAndIsr,
    StateReadResult,
    StateTransition,
    TransitionFailure,
    UpdateState,
    check_state,
    shared_leader_and_isr,
)
from barnabas.controller.elections import (
    Election,
    Strategy,
    elect_for_controlled_shutdown,
    elect_for_reassignment,
    elect_offline,
    elect_preferred,
)
from barnabas.controller.states import VALID_PREVIOUS_PARTITION_STATES, PartitionState, ReplicaState
from barnabas.model import LeaderAndIsr, LeaderEpoch, Replica, TopicPartition, ZnodeVersion

INITIAL_LEADER_EPOCH = LeaderEpoch(0)
INITIAL_PARTITION_EPOCH = ZnodeVersion(0)


def partitions_for_elections(
    context: ControllerContext, partitions: Iterable[TopicPartition], target: PartitionState
) -> tuple[TopicPartition, ...]:
    """Return the partitions that need an election. The caller passes their states to the decision."""
    if target is not PartitionState.ONLINE:
        return ()
    electing = (PartitionState.ONLINE, PartitionState.OFFLINE)
    return tuple(each for each in partitions if context.partition_state(each) in electing)


def topics_for_unclean_check(
    context: ControllerContext, states: Mapping[TopicPartition, StateReadResult]
) -> tuple[str, ...]:
    """Return the topics with a partition whose whole ISR is offline. Their configs may allow unclean elections."""
    return tuple(
        dict.fromkeys(
            partition.topic
            for partition, state in sorted(states.items())
            if isinstance(state, LeaderAndIsr)
            and not any(context.is_replica_online(broker, partition) for broker in state.isr)
        )
    )


def decide_partition_transitions(
    context: ControllerContext,
    partitions: Iterable[TopicPartition],
    target: PartitionState,
    *,
    cause: str,
    strategy: Strategy | None = None,
    states: Mapping[TopicPartition, StateReadResult] | None = None,
    unclean: Mapping[str, bool] | None = None,
) -> PartitionDecision:
    """Decide how to move the partitions to `target`.

    `states` are those of the partitions from `partitions_for_elections`. A missing one has no state in the registry.
    `unclean` maps the topics from `topics_for_unclean_check` to whether they allow unclean elections. If a topic is
    missing, its config could not be read, and the election fails.
    """
    transitions: list[PartitionTransition] = []
    failures: list[PartitionFailure] = []
    valid = VALID_PREVIOUS_PARTITION_STATES[target]
    for partition in sorted(set(partitions)):
        before = context.partition_state(partition)
        decided: PartitionTransition | tuple[FailureReason, str]
        if before not in valid:
            decided = FailureReason.ILLEGAL_TRANSITION, f"the state is {before}"
        elif target is not PartitionState.ONLINE:
            decided = StateTransition(partition, before, target, cause)
        elif before is PartitionState.NEW:
            decided = decide_first_leader(context, partition, cause)
        else:
            assert strategy is not None, "an election needs a strategy"
            state = (states or {}).get(partition)
            decided = decide_election(context, partition, state, strategy, unclean or {}, cause)
        if isinstance(decided, StateTransition):
            transitions.append(decided)
        else:
            failures.append(TransitionFailure(partition, before, target, *decided, cause))
    return Decision(transitions=tuple(transitions), failures=tuple(failures))


def decide_first_leader(
    context: ControllerContext, partition: TopicPartition, cause: str
) -> PartitionTransition | tuple[FailureReason, str]:
    """Decide the first leader and ISR of a partition, or fail if no replica is online."""
    online = context.online_replicas(partition)
    if not online:
        return FailureReason.NO_LIVE_REPLICA, f"assigned to {join_ids(context.replicas(partition))}"
    state = shared_leader_and_isr(
        leader=online[0],
        isr=online,
        leader_epoch=INITIAL_LEADER_EPOCH,
        controller_epoch=context.epoch,
        partition_epoch=INITIAL_PARTITION_EPOCH,
    )
    return StateTransition(
        item=partition,
        before=PartitionState.NEW,
        after=PartitionState.ONLINE,
        cause=cause,
        write=CreateState(partition=partition, state=state),
        leadership=state,
        requests=(SendLeaderAndIsr(brokers=online, partition=partition, is_new=True),),
    )


def decide_election(
    context: ControllerContext,
    partition: TopicPartition,
    state: StateReadResult | None,
    strategy: Strategy,
    unclean: Mapping[str, bool],
    cause: str,
) -> PartitionTransition | tuple[FailureReason, str]:
    """Elect a leader based on `state`, or return why that is impossible."""
    if (problem := check_state(state, context.epoch)) is not None:
        return problem
    assert isinstance(state, LeaderAndIsr)
    chosen = elect_by_strategy(context, partition, state, strategy, unclean)
    if not isinstance(chosen, Election):
        return chosen
    after = shared_leader_and_isr(
        leader=chosen.leader,
        isr=chosen.isr,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        controller_epoch=context.epoch,
        partition_epoch=state.partition_epoch,
        recovering=state.recovering or chosen.is_unclean,
    )
    return StateTransition(
        item=partition,
        before=context.partition_state(partition),
        after=PartitionState.ONLINE,
        cause=cause,
        write=UpdateState(partition=partition, state=after, expected_version=state.partition_epoch),
        leadership=after,
        requests=(SendLeaderAndIsr(brokers=chosen.recipients, partition=partition, is_new=False),),
        is_unclean=chosen.is_unclean,
    )


def elect_by_strategy(
    context: ControllerContext,
    partition: TopicPartition,
    state: LeaderAndIsr,
    strategy: Strategy,
    unclean: Mapping[str, bool],
) -> Election | tuple[FailureReason, str]:
    """Elect a leader, or return why no replica is eligible."""
    assignment = context.assignment(partition)
    # After a cancelled reassignment, the ISR may contain an unassigned replica. It stays there, but cannot lead.
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
            return FailureReason.CONFIG_UNKNOWN, "no replica of the ISR is online"
        chosen = elect_offline(assignment.replicas, state.isr, online, unclean_allowed=allowed)
    if chosen is None:
        return FailureReason.NO_ELIGIBLE_LEADER, (
            f"strategy {strategy}, assigned {join_ids(assignment.replicas)}, "
            f"ISR {join_ids(state.isr)}, online {join_ids(online)}"
        )
    return chosen


def decide_epoch_raises(
    context: ControllerContext,
    partitions: Iterable[TopicPartition],
    states: Mapping[TopicPartition, StateReadResult],
    *,
    cause: str,
) -> PartitionDecision:
    """Raise the leader epoch of each partition, and send the new assignment to its replicas.

    Adding replicas that do not exist yet get LeaderAndIsr with their transition to New.
    """
    transitions: list[PartitionTransition] = []
    failures: list[PartitionFailure] = []
    for partition in partitions:
        decided = decide_epoch_raise(context, partition, states.get(partition), cause)
        if isinstance(decided, StateTransition):
            transitions.append(decided)
        else:
            before = context.partition_state(partition)
            failures.append(TransitionFailure(partition, before, before, *decided, cause))
    return Decision(transitions=tuple(transitions), failures=tuple(failures))


def decide_epoch_raise(
    context: ControllerContext,
    partition: TopicPartition,
    state: StateReadResult | None,
    cause: str,
) -> PartitionTransition | tuple[FailureReason, str]:
    if (problem := check_state(state, context.epoch)) is not None:
        return problem
    assert isinstance(state, LeaderAndIsr)
    assignment = context.assignment(partition)
    raised = replace(
        state, leader_epoch=LeaderEpoch(state.leader_epoch + 1), controller_epoch=context.epoch
    )
    existing = tuple(
        broker
        for broker in assignment.adding
        if context.replica_state(Replica(partition, broker)) is not ReplicaState.NON_EXISTENT
    )
    current = context.partition_state(partition)
    return StateTransition(
        item=partition,
        before=current,
        after=current,
        cause=cause,
        write=UpdateState(
            partition=partition, state=raised, expected_version=state.partition_epoch
        ),
        leadership=raised,
        requests=(
            SendLeaderAndIsr(origin_replicas(assignment), partition, is_new=False),
            SendLeaderAndIsr(existing, partition, is_new=True),
        ),
    )


def apply_partition_transitions(context: ControllerContext, committed: PartitionDecision) -> None:
    """Apply a committed decision to the context."""
    for each in committed.transitions:
        assert context.partition_state(each.item) is each.before, (
            f"{each.item} is not in {each.before}"
        )
        assert each.before in VALID_PREVIOUS_PARTITION_STATES[each.after], f"{each} is illegal"
        if each.leadership is not None:
            context.set_leadership(each.item, each.leadership)
        context.set_partition_state(each.item, each.after)


def join_ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers)) or "none"
