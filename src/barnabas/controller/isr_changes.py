"""Validation of AlterPartition requests, per partition. Error codes and their precedence are Kafka's.

A leader proposes an ISR, with the leader epoch and partition epoch that it knows. If the controller knows other
epochs, the proposal or the controller is stale. An accepted proposal does not change the leader epoch.
"""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from barnabas.controller.context import ControllerContext
from barnabas.errors import ErrorCode
from barnabas.model import ZERO_ID, BrokerEpoch, BrokerId, LeaderAndIsr, TopicPartition
from barnabas.wire.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResponse,
)
from barnabas.wire.messages.control_plane import LeaderRecoveryState

INELIGIBLE_REPLICA_SINCE = 2
TOPIC_IDS_SINCE = 2
BROKER_EPOCHS_SINCE = 3
ANY_EPOCH = -1


def check_request(context: ControllerContext, request: AlterPartitionRequest) -> ErrorCode:
    """Validate the sender of the request. Returns NONE or STALE_BROKER_EPOCH."""
    registered = context.broker_epochs.get(BrokerId(request.broker_id))
    if registered is None or registered != request.broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    return ErrorCode.NONE


def evaluate_proposal(
    context: ControllerContext,
    partition: TopicPartition,
    proposal: AlterPartitionPartition,
    version: int,
) -> LeaderAndIsr | ErrorCode:
    """Return the state to write, the known state object itself if nothing changes, or an error code."""
    known = context.leadership.get(partition)
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    isr, epochs = proposed_isr(proposal, version)
    recovering = proposal.leader_recovery_state == LeaderRecoveryState.RECOVERING
    if (
        proposal.partition_epoch > known.partition_epoch
        or proposal.leader_epoch > known.leader_epoch
    ):
        # The leader knows a newer controller than this one.
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < known.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if isr == known.isr and recovering == known.recovering:
        return known  # a retry: the response to the first attempt was lost
    if proposal.partition_epoch < known.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if recovering and (len(isr) > 1 or not known.recovering):
        return ErrorCode.INVALID_REQUEST
    # A leader may not know yet that a replica is no longer assigned: its controller failed after a cancellation.
    may_join = {*known.isr, *context.replicas(partition)}
    if not may_join.issuperset(isr) or not all(
        is_eligible(context, broker, epoch, is_member=broker in known.isr)
        for broker, epoch in zip(isr, epochs, strict=True)
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
    """Return the proposed ISR, and the broker epoch of each member when it caught up; ANY_EPOCH if not sent."""
    if version >= BROKER_EPOCHS_SINCE:
        states = proposal.new_isr_with_epochs
        return tuple(BrokerId(s.broker_id) for s in states), tuple(s.broker_epoch for s in states)
    return tuple(BrokerId(b) for b in proposal.new_isr), (ANY_EPOCH,) * len(proposal.new_isr)


def is_eligible(
    context: ControllerContext, broker: BrokerId, epoch: int, *, is_member: bool
) -> bool:
    """Return whether the broker is live and has not restarted since it caught up.

    A member of the ISR may be shutting down. Otherwise a leader that shuts down could not add the follower to which it
    hands over.
    """
    if broker not in context.brokers or not (is_member or context.is_live(broker)):
        return False
    return epoch == ANY_EPOCH or context.broker_epochs[broker] == BrokerEpoch(epoch)


def topic_name_of(
    context: ControllerContext, name: str, topic_id: UUID, version: int
) -> str | None:
    """Return the name of a requested topic, or None for an unknown topic id. Old versions send the name."""
    if version < TOPIC_IDS_SINCE:
        return name
    return context.topic_names.get(topic_id)


def build_alter_partition_response(
    partitions: dict[tuple[str, UUID], list[AlterPartitionPartitionResponse]], version: int
) -> AlterPartitionResponse:
    return AlterPartitionResponse(
        topics=tuple(
            AlterPartitionTopicResponse(
                topic_name=name if version < TOPIC_IDS_SINCE else "",
                topic_id=topic_id if version >= TOPIC_IDS_SINCE else ZERO_ID,
                partitions=tuple(found),
            )
            for (name, topic_id), found in partitions.items()
        )
    )


def build_partition_response(
    index: int, result: LeaderAndIsr | ErrorCode
) -> AlterPartitionPartitionResponse:
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
