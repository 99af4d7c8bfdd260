"""StopReplica: the controller stops replicas on this broker, and may delete their logs."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
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
    async with context.control.admit("StopReplica", request, connection) as error:
        if error:
            return StopReplicaResponse(error_code=error)
        errors = await context.replicas.stop_replicas(dict(partitions_to_stop(request)))
    return StopReplicaResponse(
        partition_errors=tuple(StopReplicaPartitionError(*tp, code) for tp, code in errors.items())
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
