"""StopReplica: the controller stops replicas on this broker, and may delete their logs."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.control_plane import may_act_for_the_cluster
from barnabas.errors import ErrorCode
from barnabas.model import NO_EPOCH, TopicPartition
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
)


async def handle(
    context: BrokerContext, request: StopReplicaRequest, _: RequestHeader, connection: Connection
) -> StopReplicaResponse:
    control = context.control
    sender = ("StopReplica", request.controller_id)
    if not may_act_for_the_cluster(connection):
        return StopReplicaResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if error := await control.broker_error(*sender, request.broker_epoch):
        return StopReplicaResponse(error_code=error)
    if not await control.recognises(*sender, request.controller_epoch):
        return StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    async with control.lock:
        if error := control.controller_error(*sender, request.controller_epoch):
            return StopReplicaResponse(error_code=error)
        errors = await context.replicas.stop_replicas(dict(partitions_to_stop(request)))
    return StopReplicaResponse(
        partition_errors=tuple(
            StopReplicaPartitionError(*tp, error) for tp, error in errors.items()
        )
    )


def partitions_to_stop(
    request: StopReplicaRequest,
) -> Iterator[tuple[TopicPartition, StopReplicaPartitionState]]:
    """Yield the partitions of any version of the request. Older versions have no leader epochs."""
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield TopicPartition(topic.topic_name, state.partition_index), state
    flat = [(each.topic_name, each.partition_index) for each in request.ungrouped_partitions]
    flat += [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    for name, index in flat:
        state = StopReplicaPartitionState(index, NO_EPOCH, request.delete_partitions)
        yield TopicPartition(name, index), state
