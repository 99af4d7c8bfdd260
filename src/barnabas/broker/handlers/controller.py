"""AlterPartition and ControlledShutdown: what brokers ask of the one that is in charge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from barnabas.broker.connection import Connection
from barnabas.broker.control_plane import may_act_for_the_cluster
from barnabas.broker.parts import BrokerParts
from barnabas.controller.events import AlterPartitionReceived, ControlledShutdownReceived
from barnabas.errors import ApiError, ErrorCode
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    AlterPartitionTopicResponse,
)
from barnabas.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

R = TypeVar("R")
Topics = tuple[AlterPartitionTopic, ...]
ALTERED_AT_ONCE = 1000
"""Partitions in one event of the controller, which others wait for."""


async def alter_partition(
    parts: BrokerParts,
    request: AlterPartitionRequest,
    header: RequestHeader,
    connection: Connection,
) -> AlterPartitionResponse:
    if not may_act_for_the_cluster(connection):
        return AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not parts.controller.is_active:
        return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
    altered: list[AlterPartitionTopicResponse] = []
    for topics in bounded(request.topics):
        some = replace(request, topics=topics)
        future: asyncio.Future[AlterPartitionResponse | ApiError]
        future = asyncio.get_running_loop().create_future()
        answer = answers(future)
        parts.controller.queue.put(AlterPartitionReceived(some, header.api_version, answer))
        result = await future
        if isinstance(result, ApiError):
            return AlterPartitionResponse(error_code=result.code)
        if result.error_code:
            return result
        altered += result.topics
    return AlterPartitionResponse(topics=tuple(altered))


def bounded(topics: Topics) -> Iterator[Topics]:
    """The same partitions in groups that one event of the controller handles. At least one group."""
    group: list[AlterPartitionTopic] = []
    size = 0
    for topic in topics:
        for start in range(0, len(topic.partitions), ALTERED_AT_ONCE):
            partitions = topic.partitions[start : start + ALTERED_AT_ONCE]
            if size and size + len(partitions) > ALTERED_AT_ONCE:
                yield tuple(group)
                group, size = [], 0
            group.append(topic._replace(partitions=partitions))
            size += len(partitions)
    yield tuple(group)


async def controlled_shutdown(
    parts: BrokerParts, request: ControlledShutdownRequest, _: RequestHeader, connection: Connection
) -> ControlledShutdownResponse:
    if not may_act_for_the_cluster(connection):
        return ControlledShutdownResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not parts.controller.is_active:
        return ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)
    future: asyncio.Future[ControlledShutdownResponse | ApiError]
    future = asyncio.get_running_loop().create_future()
    parts.controller.queue.put(ControlledShutdownReceived(request, answers(future)))
    result = await future
    if isinstance(result, ApiError):
        return ControlledShutdownResponse(error_code=result.code)
    return result


def answers(future: asyncio.Future[R]) -> Callable[[R], None]:
    """Only the first answer counts."""

    def answer(result: R) -> None:
        if not future.done():
            future.set_result(result)

    return answer
