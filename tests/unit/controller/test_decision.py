"""Outcome of a decision after the registry writes: success, retry or failure."""

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


def election_move(partition: TopicPartition) -> PartitionTransition:
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


def creation_move(partition: TopicPartition) -> PartitionTransition:
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


def test_committed_move_carries_written_version() -> None:
    outcome = Decision(transitions=(election_move(A),)).outcome_of({A: ZnodeVersion(8)})
    (won,) = outcome.committed.transitions
    assert won.leadership == state(2, [2], epoch=4, version=8)
    assert (outcome.to_retry, outcome.failures, outcome.has_newer_controller) == ((), (), False)


def test_bad_version_is_retried_and_not_announced() -> None:
    decision: PartitionDecision = Decision(transitions=(election_move(A), election_move(B)))
    outcome = decision.outcome_of({A: WriteRejection.BAD_VERSION, B: ZnodeVersion(8)})
    assert [move.item for move in outcome.committed.transitions] == [B]
    assert outcome.committed.requests == election_move(B).requests
    assert outcome.to_retry == (A,)
    assert outcome.failures == ()


@pytest.mark.parametrize(
    ("move", "refused", "reason"),
    [
        (creation_move(A), WriteRejection.NODE_EXISTS, FailureReason.STATE_EXISTS),
        (election_move(A), WriteRejection.NO_NODE, FailureReason.STATE_MISSING),
        (election_move(A), WriteRejection.FAILED, FailureReason.WRITE_FAILED),
        (creation_move(A), WriteRejection.FAILED, FailureReason.WRITE_FAILED),
        (creation_move(A), WriteRejection.BAD_VERSION, FailureReason.WRITE_FAILED),
    ],
)
def test_other_write_errors_are_final(
    move: PartitionTransition, refused: WriteRejection, reason: FailureReason
) -> None:
    outcome = Decision(transitions=(move, election_move(B))).outcome_of(
        {A: refused, B: ZnodeVersion(8)}
    )
    assert [each.item for each in outcome.committed.transitions] == [B]
    assert outcome.to_retry == ()
    (failure,) = outcome.failures
    assert (failure.item, failure.reason, failure.cause) == (A, reason, CAUSE)
    assert "t-0: " in str(failure)


def test_move_without_write_succeeds_and_failures_are_kept() -> None:
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


def test_stop_replica_is_sent_even_if_isr_write_failed() -> None:
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


def test_missing_write_result_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        Decision(transitions=(election_move(A),)).outcome_of({})
