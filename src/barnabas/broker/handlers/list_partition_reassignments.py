"""ListPartitionReassignments: the reassignments in progress. Only the active controller serves it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.handlers.controller_queue import wait_for_controller
from barnabas.broker.topic_admin.topics import error_fields
from barnabas.controller.events import ListReassignmentsReceived
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.znodes import ReplicaAssignment
from barnabas.model import TopicPartition
from barnabas.security.acl.model import Operation
from barnabas.tasks import in_thread_if_large
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

Reassignments = Mapping[TopicPartition, ReplicaAssignment]


async def handle(
    context: BrokerContext,
    request: ListPartitionReassignmentsRequest,
    _: RequestHeader,
    connection: Connection,
) -> ListPartitionReassignmentsResponse:
    size = sum(len(topic.partition_indexes) for topic in request.topics or ())
    partitions = await in_thread_if_large(size, requested_partitions, request)
    found: Reassignments | ApiError
    if not context.security.access.allows_cluster(connection, Operation.DESCRIBE):
        found = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    elif not context.controller.is_active:
        found = ApiError(ErrorCode.NOT_CONTROLLER)
    else:
        event = partial(ListReassignmentsReceived, partitions)
        found = await wait_for_controller(context.controller.queue, event)
    if isinstance(found, ApiError):
        code, message = error_fields(found)
        return ListPartitionReassignmentsResponse(error_code=code, error_message=message)
    topics = await in_thread_if_large(len(found), reassignments_by_topic, found)
    return ListPartitionReassignmentsResponse(topics=topics)


def requested_partitions(
    request: ListPartitionReassignmentsRequest,
) -> frozenset[TopicPartition] | None:
    """Return the requested partitions, or None for all."""
    if request.topics is None:
        return None
    return frozenset(
        TopicPartition(topic.name, index)
        for topic in request.topics
        for index in topic.partition_indexes
    )


def reassignments_by_topic(found: Reassignments) -> tuple[OngoingTopicReassignment, ...]:
    by_topic: dict[str, list[OngoingPartitionReassignment]] = {}
    for (topic, index), assignment in found.items():
        entry = OngoingPartitionReassignment(
            partition_index=index,
            replicas=assignment.replicas,
            adding_replicas=assignment.adding,
            removing_replicas=assignment.removing,
        )
        by_topic.setdefault(topic, []).append(entry)
    return tuple(OngoingTopicReassignment(name, tuple(each)) for name, each in by_topic.items())
