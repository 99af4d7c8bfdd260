"""Every state transition, legal or not, against Kafka's tables."""

from __future__ import annotations

from itertools import product

import pytest

from barnabas.controller import partition_machine, replica_machine
from barnabas.controller.context import ControllerContext
from barnabas.controller.decision import FailureReason
from barnabas.controller.elections import Strategy
from barnabas.controller.states import (
    VALID_PREVIOUS_PARTITION_STATES,
    VALID_PREVIOUS_REPLICA_STATES,
    PartitionState,
    ReplicaState,
)
from barnabas.model import BrokerEpoch, BrokerId, TopicPartition
from tests.unit.controller.cluster import CAUSE, broker, replica, replica_assignment, state

TP = TopicPartition("t", 0)

P = PartitionState
LEGAL_FOR_PARTITIONS = {
    (P.NON_EXISTENT, P.NEW),
    (P.NEW, P.ONLINE),
    (P.ONLINE, P.ONLINE),
    (P.OFFLINE, P.ONLINE),
    (P.NEW, P.OFFLINE),
    (P.ONLINE, P.OFFLINE),
    (P.OFFLINE, P.OFFLINE),
    (P.OFFLINE, P.NON_EXISTENT),
}

R = ReplicaState
LEGAL_FOR_REPLICAS = {
    (R.NON_EXISTENT, R.NEW),
    (R.NEW, R.ONLINE),
    (R.ONLINE, R.ONLINE),
    (R.OFFLINE, R.ONLINE),
    (R.DELETION_INELIGIBLE, R.ONLINE),
    (R.NEW, R.OFFLINE),
    (R.ONLINE, R.OFFLINE),
    (R.OFFLINE, R.OFFLINE),
    (R.DELETION_INELIGIBLE, R.OFFLINE),
    (R.OFFLINE, R.DELETION_STARTED),
    (R.DELETION_STARTED, R.DELETION_SUCCESSFUL),
    (R.DELETION_STARTED, R.DELETION_INELIGIBLE),
    (R.OFFLINE, R.DELETION_INELIGIBLE),
    (R.DELETION_SUCCESSFUL, R.NON_EXISTENT),
}


def context() -> ControllerContext:
    made = ControllerContext()
    for number in (1, 2):
        made.set_broker(broker(number), BrokerEpoch(number))
    made.add_topic("t")
    made.set_assignment(TP, replica_assignment(1, 2))
    return made


def test_states_have_kafka_names() -> None:
    assert {each.value for each in PartitionState} == {
        "NonExistentPartition",
        "NewPartition",
        "OnlinePartition",
        "OfflinePartition",
    }
    assert {each.value for each in ReplicaState} == {
        "NonExistentReplica",
        "NewReplica",
        "OnlineReplica",
        "OfflineReplica",
        "ReplicaDeletionStarted",
        "ReplicaDeletionSuccessful",
        "ReplicaDeletionIneligible",
    }
    assert VALID_PREVIOUS_PARTITION_STATES.keys() == set(PartitionState)
    assert VALID_PREVIOUS_REPLICA_STATES.keys() == set(ReplicaState)


@pytest.mark.parametrize(("before", "target"), list(product(PartitionState, PartitionState)))
def test_partition_makes_only_legal_moves(before: PartitionState, target: PartitionState) -> None:
    known = context()
    known.set_partition_state(TP, before)
    known_state = state(1, [1, 2], controller_epoch=0)
    decision = partition_machine.decide_partition_transitions(
        known, [TP], target, cause=CAUSE, strategy=Strategy.OFFLINE, states={TP: known_state}
    )
    if (before, target) in LEGAL_FOR_PARTITIONS:
        assert [(move.before, move.after) for move in decision.transitions] == [(before, target)]
        assert decision.failures == ()
        assert bool(decision.writes) == (target is PartitionState.ONLINE)
        assert bool(decision.requests) == (target is PartitionState.ONLINE)
    else:
        assert decision.transitions == ()
        (failure,) = decision.failures
        assert failure.reason is FailureReason.ILLEGAL_TRANSITION
        assert before.value in failure.why
    assert known.partition_state(TP) is before


@pytest.mark.parametrize(("before", "target"), list(product(ReplicaState, ReplicaState)))
@pytest.mark.parametrize("led", [True, False])
def test_replica_makes_only_legal_moves(
    before: ReplicaState, target: ReplicaState, led: bool
) -> None:
    known = context()
    if led:
        known.set_leadership(TP, state(1, [1, 2], controller_epoch=0))
    two = replica(TP, 2)
    known.set_replica_state(two, before)
    states = dict(known.leadership)
    decision = replica_machine.decide_replica_transitions(
        known, [two], target, cause=CAUSE, states=states
    )
    if (before, target) in LEGAL_FOR_REPLICAS:
        assert [(move.before, move.after) for move in decision.transitions] == [(before, target)]
        assert decision.failures == ()
    else:
        assert (decision.transitions, decision.requests) == ((), ())
        (failure,) = decision.failures
        assert failure.reason is FailureReason.ILLEGAL_TRANSITION
        assert before.value in failure.why
    assert known.replica_state(two) is before


def test_unknown_items_are_non_existent() -> None:
    assert ControllerContext().partition_state(TP) is PartitionState.NON_EXISTENT
    assert ControllerContext().replica_state(replica(TP, 1)) is ReplicaState.NON_EXISTENT


def test_replica_as_text() -> None:
    assert str(replica(TP, BrokerId(3))) == "t-0 on 3"
