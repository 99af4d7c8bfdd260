"""A decision after the registry has spoken: what won, what is tried again, what is over."""

from __future__ import annotations

import pytest

from barnabas.controller.decision import (
    CreateState,
    Decision,
    FailureReason,
    PartitionDecision,
    PartitionTransition,
    ReplicaDecision,
    SendLeaderAndIsr,
    SendStopReplica,
    StateTransition,
    TransitionFailure,
    UpdateState,
    Write,
    WriteRejection,
)
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.model import BrokerId, LeaderEpoch, TopicPartition, ZnodeVersion
from tests.unit.controller.cluster import CAUSE, ids, replica, state

A, B, C = (TopicPartition("t", index) for index in range(3))


def electing(partition: TopicPartition) -> PartitionTransition:
    after = state(2, [2], epoch=4, version=7)
    return StateTransition(
        item=partition,
        before=PartitionState.OFFLINE,
        after=PartitionState.ONLINE,
        cause=CAUSE,
        write=UpdateState(partition=partition, state=after, expected_version=ZnodeVersion(7)),
        leadership=after,
        requests=(SendLeaderAndIsr(brokers=ids(2), partition=partition, is_new=False),),
    )


def creating(partition: TopicPartition) -> PartitionTransition:
    first = state(2, [2])
    write: Write = CreateState(partition=partition, state=first)
    return StateTransition(
        item=partition,
        before=PartitionState.NEW,
        after=PartitionState.ONLINE,
        cause=CAUSE,
        write=write,
        leadership=first,
    )


def test_what_won_carries_the_version_it_was_written_with() -> None:
    outcome = Decision(transitions=(electing(A),)).outcome_of({A: ZnodeVersion(8)})
    (won,) = outcome.committed.transitions
    assert won.leadership == state(2, [2], epoch=4, version=8)
    assert (outcome.to_retry, outcome.failures, outcome.has_newer_controller) == ((), (), False)


def test_a_lost_race_is_neither_announced_nor_over() -> None:
    decision: PartitionDecision = Decision(transitions=(electing(A), electing(B)))
    outcome = decision.outcome_of({A: WriteRejection.BAD_VERSION, B: ZnodeVersion(8)})
    assert [move.item for move in outcome.committed.transitions] == [B]
    assert outcome.committed.requests == electing(B).requests
    assert outcome.to_retry == (A,)
    assert outcome.failures == ()


@pytest.mark.parametrize(
    ("move", "refused", "reason"),
    [
        (creating(A), WriteRejection.NODE_EXISTS, FailureReason.STATE_EXISTS),
        (electing(A), WriteRejection.NO_NODE, FailureReason.STATE_MISSING),
        (electing(A), WriteRejection.FAILED, FailureReason.WRITE_FAILED),
        (creating(A), WriteRejection.FAILED, FailureReason.WRITE_FAILED),
        (creating(A), WriteRejection.BAD_VERSION, FailureReason.WRITE_FAILED),
    ],
)
def test_other_refusals_are_over(
    move: PartitionTransition, refused: WriteRejection, reason: FailureReason
) -> None:
    outcome = Decision(transitions=(move, electing(B))).outcome_of({A: refused, B: ZnodeVersion(8)})
    assert [each.item for each in outcome.committed.transitions] == [B]
    assert outcome.to_retry == ()
    (failure,) = outcome.failures
    assert (failure.item, failure.reason, failure.cause) == (A, reason, CAUSE)
    assert "t-0: " in str(failure)


def test_what_writes_nothing_wins_by_itself_and_what_failed_before_stays_failed() -> None:
    known = TransitionFailure(
        item=C,
        before=PartitionState.NEW,
        after=PartitionState.ONLINE,
        reason=FailureReason.CONTROLLER_MOVED,
        why="",
        cause=CAUSE,
    )
    silent: PartitionTransition = StateTransition(
        item=A, before=PartitionState.ONLINE, after=PartitionState.OFFLINE, cause=CAUSE
    )
    outcome = Decision(transitions=(silent,), failures=(known,), deferred=(B,)).outcome_of({})
    assert outcome.committed.transitions == (silent,)
    assert outcome.failures == (known,)
    assert outcome.to_retry == (B,)
    assert outcome.has_newer_controller


def test_a_replica_hears_that_it_is_to_stop_even_if_the_isr_could_not_be_changed() -> None:
    stop = SendStopReplica(
        broker=BrokerId(2), partition=A, leader_epoch=LeaderEpoch(3), delete_partition=False
    )
    after = state(1, [1], epoch=4)
    decision: ReplicaDecision = Decision(
        transitions=(
            StateTransition(
                item=replica(A, 2),
                before=ReplicaState.ONLINE,
                after=ReplicaState.OFFLINE,
                cause=CAUSE,
                write=UpdateState(partition=A, state=after, expected_version=ZnodeVersion(0)),
                leadership=after,
                requests=(SendLeaderAndIsr(brokers=ids(1), partition=A, is_new=False),),
                stops=(stop,),
            ),
        )
    )
    assert decision.outcome_of({A: WriteRejection.FAILED}).committed.requests == (stop,)
    assert decision.outcome_of({A: WriteRejection.BAD_VERSION}).committed.requests == ()
    assert len(decision.outcome_of({A: ZnodeVersion(1)}).committed.requests) == 2


def test_a_write_without_an_answer_is_a_bug() -> None:
    with pytest.raises(KeyError):
        Decision(transitions=(electing(A),)).outcome_of({})
