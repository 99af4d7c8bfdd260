"""StopReplica: the controller stops replicas on this broker, and may delete their logs."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.model import NO_EPOCH, TopicPartition
from barnabas.tasks import in_thread_if_large
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
        size = len(request.ungrouped_partitions)
        size += sum(len(topic.partition_states) for topic in request.topic_states)
        size += sum(len(topic.partition_indexes) for topic in request.topics)
        states = await in_thread_if_large(size, states_to_stop, request)
        errors = await context.replicas.stop_replicas(states)
    return await in_thread_if_large(len(errors), build_response, errors)


def states_to_stop(
    request: StopReplicaRequest,
) -> dict[TopicPartition, StopReplicaPartitionState]:
    """Return the partitions of any version of the request. Older versions have no leader epochs."""
    states = {
        TopicPartition(topic.topic_name, state.partition_index): state
        for topic in request.topic_states
        for state in topic.partition_states
    }
    flat = [(each.topic_name, each.partition_index) for each in request.ungrouped_partitions]
    flat += [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    for name, index in flat:
        state = StopReplicaPartitionState(index, NO_EPOCH, request.delete_partitions)
        states[TopicPartition(name, index)] = state
    return states


def build_response(errors: Mapping[TopicPartition, ErrorCode]) -> StopReplicaResponse:
    return StopReplicaResponse(
        partition_errors=tuple(StopReplicaPartitionError(*tp, code) for tp, code in errors.items())
    )
