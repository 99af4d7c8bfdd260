"""AlterPartitionReassignments: moves the replicas of partitions to other brokers, or cancels such a move.

Only the active controller serves it; other brokers return NOT_CONTROLLER. The response does not wait for the replicas
to move: clients follow them with ListPartitionReassignments.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from msgspec.structs import replace

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.handlers.controller_queue import wait_for_controller
from barnabas.broker.topic_admin.topics import error_fields
from barnabas.controller.events import ReassignmentsReceived
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import BrokerId, TopicPartition
from barnabas.security.acl.model import Operation
from barnabas.tasks import in_chunks, in_thread_if_large
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

REASSIGNED_AT_ONCE = 1000
"""Maximum number of partitions in one controller event, since other events wait meanwhile."""
Outcomes = Mapping[TopicPartition, ApiError | None]


async def handle(
    context: BrokerContext,
    request: AlterPartitionReassignmentsRequest,
    _: RequestHeader,
    connection: Connection,
) -> AlterPartitionReassignmentsResponse:
    size = sum(len(topic.partitions) for topic in request.topics)
    targets = await in_thread_if_large(size, requested_targets, request)
    try:
        context.security.access.require_cluster(connection, Operation.ALTER)
    except ApiError as error:
        rejected = await in_thread_if_large(size, results_by_topic, dict.fromkeys(targets, error))
        return replace(build_error_response(error), responses=rejected)
    if not context.controller.is_active:
        return build_error_response(ApiError(ErrorCode.NOT_CONTROLLER))
    outcomes: dict[TopicPartition, ApiError | None] = {}
    async for chunk in in_chunks(tuple(targets.items()), REASSIGNED_AT_ONCE):
        event = partial(ReassignmentsReceived, dict(chunk))
        found: Outcomes | ApiError = await wait_for_controller(context.controller.queue, event)
        if isinstance(found, ApiError):
            return build_error_response(found)
        outcomes |= found
    results = await in_thread_if_large(size, results_by_topic, outcomes)
    return AlterPartitionReassignmentsResponse(responses=results)


def requested_targets(
    request: AlterPartitionReassignmentsRequest,
) -> dict[TopicPartition, tuple[BrokerId, ...] | None]:
    """Return the target replicas by partition; None cancels. The last of several entries for a partition applies."""
    return {
        TopicPartition(topic.name, each.partition_index): (
            None if each.replicas is None else tuple(map(BrokerId, each.replicas))
        )
        for topic in request.topics
        for each in topic.partitions
    }


def build_error_response(error: ApiError) -> AlterPartitionReassignmentsResponse:
    code, message = error_fields(error)
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=message)


def results_by_topic(outcomes: Outcomes) -> tuple[ReassignableTopicResponse, ...]:
    found: dict[str, list[ReassignablePartitionResponse]] = {}
    for (topic, index), error in outcomes.items():
        result = ReassignablePartitionResponse(index, *error_fields(error))
        found.setdefault(topic, []).append(result)
    return tuple(ReassignableTopicResponse(name, tuple(each)) for name, each in found.items())
