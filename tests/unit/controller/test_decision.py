"""A decision after the registry has spoken: what won, what is tried again, what is over."""

from __future__ import annotations

import pytest

from barnabas.controller.decision import (
    CreateState,
    Decision,
    Failure,
    FailureReason,
    Move,
    PartitionDecision,
    PartitionMove,
    ReplicaDecision,
    SendLeaderAndIsr,
    SendStopReplica,
    UpdateState,
    Write,
    WriteRefused,
)
from barnabas.controller.states import PartitionState, ReplicaState
from barnabas.model import BrokerId, LeaderEpoch, TopicPartition, ZnodeVersion
from tests.unit.controller.cluster import CAUSE, ids, replica, state

A, B, C = (TopicPartition("t", index) for index in range(3))


def electing(partition: TopicPartition) -> PartitionMove:
    after = state(2, [2], epoch=4, version=7)
    return Move(
        item=partition,
        before=PartitionState.OFFLINE,
        after=PartitionState.ONLINE,
        cause=CAUSE,
        write=UpdateState(partition=partition, state=after, expected_version=ZnodeVersion(7)),
        leadership=after,
        requests=(SendLeaderAndIsr(brokers=ids(2), partition=partition, is_new=False),),
    )


def creating(partition: TopicPartition) -> PartitionMove:
    first = state(2, [2])
    write: Write = CreateState(partition=partition, state=first)
    return Move(
        item=partition,
        before=PartitionState.NEW,
        after=PartitionState.ONLINE,
        cause=CAUSE,
        write=write,
        leadership=first,
    )


def test_what_won_carries_the_version_it_was_written_with() -> None:
    outcome = Decision(moves=(electing(A),)).committed({A: ZnodeVersion(8)})
    (won,) = outcome.won.moves
    assert won.leadership == state(2, [2], epoch=4, version=8)
    assert (outcome.again, outcome.failures, outcome.moved) == ((), (), False)


def test_a_lost_race_is_neither_announced_nor_over() -> None:
    decision: PartitionDecision = Decision(moves=(electing(A), electing(B)))
    outcome = decision.committed({A: WriteRefused.BAD_VERSION, B: ZnodeVersion(8)})
    assert [move.item for move in outcome.won.moves] == [B]
    assert outcome.won.requests == electing(B).requests
    assert outcome.again == (A,)
    assert outcome.failures == ()


@pytest.mark.parametrize(
    ("move", "refused", "reason"),
    [
        (creating(A), WriteRefused.NODE_EXISTS, FailureReason.STATE_EXISTS),
        (electing(A), WriteRefused.NO_NODE, FailureReason.STATE_MISSING),
        (electing(A), WriteRefused.FAILED, FailureReason.WRITE_FAILED),
        (creating(A), WriteRefused.FAILED, FailureReason.WRITE_FAILED),
        (creating(A), WriteRefused.BAD_VERSION, FailureReason.WRITE_FAILED),
    ],
)
def test_other_refusals_are_over(
    move: PartitionMove, refused: WriteRefused, reason: FailureReason
) -> None:
    outcome = Decision(moves=(move, electing(B))).committed({A: refused, B: ZnodeVersion(8)})
    assert [each.item for each in outcome.won.moves] == [B]
    assert outcome.again == ()
    (failure,) = outcome.failures
    assert (failure.item, failure.reason, failure.cause) == (A, reason, CAUSE)
    assert "t-0: " in str(failure)


def test_what_writes_nothing_wins_by_itself_and_what_failed_before_stays_failed() -> None:
    known = Failure(
        item=C,
        before=PartitionState.NEW,
        after=PartitionState.ONLINE,
        reason=FailureReason.CONTROLLER_MOVED,
        why="",
        cause=CAUSE,
    )
    silent: PartitionMove = Move(
        item=A, before=PartitionState.ONLINE, after=PartitionState.OFFLINE, cause=CAUSE
    )
    outcome = Decision(moves=(silent,), failures=(known,), deferred=(B,)).committed({})
    assert outcome.won.moves == (silent,)
    assert outcome.failures == (known,)
    assert outcome.again == (B,)
    assert outcome.moved


def test_a_replica_hears_that_it_is_to_stop_even_if_the_isr_could_not_be_changed() -> None:
    stop = SendStopReplica(
        broker=BrokerId(2), partition=A, leader_epoch=LeaderEpoch(3), delete_partition=False
    )
    after = state(1, [1], epoch=4)
    decision: ReplicaDecision = Decision(
        moves=(
            Move(
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
    assert decision.committed({A: WriteRefused.FAILED}).won.requests == (stop,)
    assert decision.committed({A: WriteRefused.BAD_VERSION}).won.requests == ()
    assert len(decision.committed({A: ZnodeVersion(1)}).won.requests) == 2


def test_a_write_without_an_answer_is_a_bug() -> None:
    with pytest.raises(KeyError):
        Decision(moves=(electing(A),)).committed({})
