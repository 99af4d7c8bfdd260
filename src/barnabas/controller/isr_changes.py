"""What a leader may change of its ISR, decided for one partition at a time. Kafka's codes, in Kafka's order.

A leader proposes on the ground of what it knows: an epoch and a version. Both must be what the controller knows, or the
proposal is of yesterday, or the controller itself is. The leader epoch does not change: only elections raise it.
"""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from barnabas.controller.context import ControllerContext
from barnabas.errors import ErrorCode
from barnabas.model import (
    ZERO_ID,
    BrokerEpoch,
    BrokerId,
    LeaderAndIsr,
    TopicPartition,
    ZnodeVersion,
)
from barnabas.wire.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResponse,
)
from barnabas.wire.messages.control_plane import LeaderRecoveryState

INELIGIBLE_REPLICA_SINCE = 2
BY_ID_SINCE = 2
EPOCHS_SINCE = 3
ANY_EPOCH = -1


def check_request(context: ControllerContext, request: AlterPartitionRequest) -> ErrorCode:
    """About the broker that asks; NONE if it may."""
    registered = context.broker_epochs.get(BrokerId(request.broker_id))
    if registered is None or registered != request.broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    return ErrorCode.NONE


def propose(
    context: ControllerContext,
    partition: TopicPartition,
    proposal: AlterPartitionPartition,
    version: int,
) -> LeaderAndIsr | ErrorCode:
    """The state to write, the state as it is if nothing needs to be written, or the refusal."""
    known = context.leadership.get(partition)
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    isr, epochs = proposed_isr(proposal, version)
    recovering = proposal.leader_recovery_state == LeaderRecoveryState.RECOVERING
    if (
        proposal.partition_epoch > known.partition_epoch
        or proposal.leader_epoch > known.leader_epoch
    ):
        # It has heard from a newer controller than this one.
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < known.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if isr == known.isr and recovering == known.recovering:
        return known  # the answer to the first attempt was lost
    if proposal.partition_epoch < known.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if recovering and (len(isr) > 1 or not known.recovering):
        return ErrorCode.INVALID_REQUEST
    if not all(
        is_eligible(context, broker, epoch) for broker, epoch in zip(isr, epochs, strict=True)
    ):
        return (
            ErrorCode.INELIGIBLE_REPLICA
            if version >= INELIGIBLE_REPLICA_SINCE
            else ErrorCode.OPERATION_NOT_ATTEMPTED
        )
    return replace(known, isr=isr, recovering=recovering)


def proposed_isr(
    proposal: AlterPartitionPartition, version: int
) -> tuple[tuple[BrokerId, ...], tuple[int, ...]]:
    """Brokers, and the epoch each had when it caught up."""
    if version >= EPOCHS_SINCE:
        states = proposal.new_isr_with_epochs
        return tuple(BrokerId(s.broker_id) for s in states), tuple(s.broker_epoch for s in states)
    return tuple(BrokerId(b) for b in proposal.new_isr), (ANY_EPOCH,) * len(proposal.new_isr)


def is_eligible(context: ControllerContext, broker: BrokerId, epoch: int) -> bool:
    """Live, and the same life in which it caught up."""
    if not context.is_live(broker):
        return False
    return epoch == ANY_EPOCH or context.broker_epochs[broker] == BrokerEpoch(epoch)


def topic_of(context: ControllerContext, name: str, topic_id: UUID, version: int) -> str | None:
    """None for an id nobody has."""
    if version < BY_ID_SINCE:
        return name
    return context.topic_names.get(topic_id)


def answer(
    answers: dict[tuple[str, UUID], list[AlterPartitionPartitionResponse]], version: int
) -> AlterPartitionResponse:
    return AlterPartitionResponse(
        topics=tuple(
            AlterPartitionTopicResponse(
                topic_name=name if version < BY_ID_SINCE else "",
                topic_id=topic_id if version >= BY_ID_SINCE else ZERO_ID,
                partitions=tuple(found),
            )
            for (name, topic_id), found in answers.items()
        )
    )


def answered(index: int, result: LeaderAndIsr | ErrorCode) -> AlterPartitionPartitionResponse:
    if isinstance(result, ErrorCode):
        return AlterPartitionPartitionResponse(partition_index=index, error_code=result)
    return AlterPartitionPartitionResponse(
        partition_index=index,
        leader_id=result.leader,
        leader_epoch=result.leader_epoch,
        isr=result.isr,
        leader_recovery_state=int(result.recovering),
        partition_epoch=result.partition_epoch,
    )


def written(state: LeaderAndIsr, version: ZnodeVersion) -> LeaderAndIsr:
    """As the registry has it now."""
    return replace(state, partition_epoch=version)
