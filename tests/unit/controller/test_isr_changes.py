"""AlterPartition: accepted and rejected ISR changes, in the order of the checks."""

from __future__ import annotations

import pytest

from barnabas.controller.context import ControllerContext
from barnabas.controller.isr_changes import check_request, evaluate_proposal
from barnabas.errors import ErrorCode
from barnabas.model import BrokerEpoch, ControllerEpoch, LeaderAndIsr, TopicPartition
from barnabas.wire.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    BrokerState,
)
from tests.unit.controller.cluster import broker, ids, replica_assignment, state

P = TopicPartition("t", 0)


def context(*, recovering: bool = False) -> ControllerContext:
    made = ControllerContext()
    made.epoch = ControllerEpoch(3)
    for number in (1, 2, 3):
        made.set_broker(broker(number), BrokerEpoch(100 + number))
    made.add_topic("t")
    made.set_assignment(P, replica_assignment(1, 2, 3))
    isr = [1] if recovering else [1, 2]
    made.set_leadership(P, state(1, isr, epoch=5, version=7, recovering=recovering))
    return made


def proposal(
    *isr: int,
    epoch: int = 5,
    version: int = 7,
    recovering: bool = False,
    broker_epochs: tuple[int, ...] | None = None,
) -> AlterPartitionPartition:
    epochs = broker_epochs or tuple(100 + each for each in isr)
    return AlterPartitionPartition(
        partition_index=0,
        leader_epoch=epoch,
        new_isr_with_epochs=tuple(map(BrokerState, isr, epochs)),
        leader_recovery_state=int(recovering),
        partition_epoch=version,
    )


def test_valid_proposal_changes_only_the_isr() -> None:
    before = context()
    after = evaluate_proposal(before, P, proposal(1, 2, 3), 3)
    assert isinstance(after, LeaderAndIsr)
    assert after.isr == ids(1, 2, 3)
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (1, 5, 7)


def test_unchanged_isr_returns_current_state() -> None:
    made = context()
    assert evaluate_proposal(made, P, proposal(1, 2, version=6), 3) is made.leadership[P]
    assert evaluate_proposal(made, P, proposal(1, 2), 3) is made.leadership[P]


@pytest.mark.parametrize(
    ("proposed", "code"),
    [
        (proposal(1, 2, 3, version=8), ErrorCode.NOT_CONTROLLER),
        (proposal(1, 2, 3, epoch=6), ErrorCode.NOT_CONTROLLER),
        (proposal(1, 2, 3, epoch=6, version=6), ErrorCode.NOT_CONTROLLER),
        (proposal(1, 2, 3, epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (proposal(1, 2, 3, version=6), ErrorCode.INVALID_UPDATE_VERSION),
        (proposal(1, recovering=True), ErrorCode.INVALID_REQUEST),
        (proposal(1, 2, 4, broker_epochs=(101, 102, 104)), ErrorCode.INELIGIBLE_REPLICA),
        (proposal(1, 2, 3, broker_epochs=(101, 102, 99)), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_each_rejection_has_its_code(proposed: AlterPartitionPartition, code: ErrorCode) -> None:
    assert evaluate_proposal(context(), P, proposed, 3) is code


def test_unassigned_replica_cannot_join_isr_but_may_stay() -> None:
    made = context()
    made.set_assignment(P, replica_assignment(1, 3))
    assert evaluate_proposal(made, P, proposal(1, 2, 3), 3) == state(
        1, [1, 2, 3], epoch=5, version=7
    )
    made.set_assignment(P, replica_assignment(1, 2))
    assert evaluate_proposal(made, P, proposal(1, 2, 3), 3) is ErrorCode.INELIGIBLE_REPLICA


def test_recovering_leader_stays_alone_in_isr() -> None:
    made = context(recovering=True)
    assert (
        evaluate_proposal(made, P, proposal(1, 2, recovering=True), 3) is ErrorCode.INVALID_REQUEST
    )
    recovered = evaluate_proposal(made, P, proposal(1), 3)
    assert isinstance(recovered, LeaderAndIsr)
    assert not recovered.recovering


def test_shutting_down_broker_cannot_join_isr() -> None:
    made = context()
    made.shutting_down_broker_ids.add(ids(3)[0])
    assert evaluate_proposal(made, P, proposal(1, 2, 3), 3) is ErrorCode.INELIGIBLE_REPLICA
    old = AlterPartitionPartition(
        partition_index=0, leader_epoch=5, new_isr=(1, 2, 3), partition_epoch=7
    )
    assert evaluate_proposal(made, P, old, 2) is ErrorCode.INELIGIBLE_REPLICA
    assert evaluate_proposal(made, P, old, 1) is ErrorCode.OPERATION_NOT_ATTEMPTED


def test_leader_that_shuts_down_adds_the_follower_that_takes_over() -> None:
    made = context()
    made.shutting_down_broker_ids.add(ids(1)[0])
    changed = evaluate_proposal(made, P, proposal(1, 2, 3), 3)
    assert isinstance(changed, LeaderAndIsr)
    assert changed.isr == ids(1, 2, 3)


def test_unknown_partition_is_rejected() -> None:
    unknown = TopicPartition("t", 9)
    assert (
        evaluate_proposal(context(), unknown, proposal(1), 3)
        is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


@pytest.mark.parametrize(("broker_id", "epoch"), [(1, 100), (1, 102), (9, 101)])
def test_stale_broker_epoch_is_rejected(broker_id: int, epoch: int) -> None:
    request = AlterPartitionRequest(broker_id=broker_id, broker_epoch=epoch)
    assert check_request(context(), request) is ErrorCode.STALE_BROKER_EPOCH


def test_current_broker_epoch_is_accepted() -> None:
    request = AlterPartitionRequest(broker_id=1, broker_epoch=101)
    assert check_request(context(), request) is ErrorCode.NONE
