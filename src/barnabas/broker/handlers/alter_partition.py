"""AlterPartition: the controller changes the ISR of partitions at the request of their leader."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.handlers.controller_queue import wait_for_controller
from barnabas.controller.events import AlterPartitionReceived
from barnabas.errors import ApiError, ErrorCode
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    AlterPartitionTopicResponse,
)

Topics = tuple[AlterPartitionTopic, ...]
ALTERED_AT_ONCE = 1000
"""Maximum number of partitions in one controller event, since other events wait meanwhile."""


async def handle(
    context: BrokerContext,
    request: AlterPartitionRequest,
    header: RequestHeader,
    connection: Connection,
) -> AlterPartitionResponse:
    if not context.security.access.is_broker(connection):
        return AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not context.controller.is_active:
        return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
    altered: list[AlterPartitionTopicResponse] = []
    for topics in split_topics(request.topics):
        chunk = replace(request, topics=topics)
        event = partial(AlterPartitionReceived, chunk, header.api_version)
        result: AlterPartitionResponse | ApiError
        result = await wait_for_controller(context.controller.queue, event)
        if isinstance(result, ApiError):
            return AlterPartitionResponse(error_code=result.code)
        if result.error_code:
            return result
        altered += result.topics
    return AlterPartitionResponse(topics=tuple(altered))


def split_topics(topics: Topics) -> Iterator[Topics]:
    """Split the partitions into chunks of at most ALTERED_AT_ONCE. There is at least one chunk."""
    chunk: list[AlterPartitionTopic] = []
    size = 0
    for topic in topics:
        for start in range(0, len(topic.partitions), ALTERED_AT_ONCE):
            partitions = topic.partitions[start : start + ALTERED_AT_ONCE]
            if size and size + len(partitions) > ALTERED_AT_ONCE:
                yield tuple(chunk)
                chunk, size = [], 0
            chunk.append(topic._replace(partitions=partitions))
            size += len(partitions)
    yield tuple(chunk)
