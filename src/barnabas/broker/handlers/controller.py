"""AlterPartition and ControlledShutdown: what brokers ask of the one that is in charge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from barnabas.broker.connection import Connection
from barnabas.broker.control_plane import may_act_for_the_cluster
from barnabas.broker.parts import BrokerParts
from barnabas.controller.events import AlterPartitionReceived, ControlledShutdownReceived
from barnabas.errors import ApiError, ErrorCode
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

R = TypeVar("R")


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
    future: asyncio.Future[AlterPartitionResponse | ApiError]
    future = asyncio.get_running_loop().create_future()
    answer = answers(future)
    parts.controller.queue.put(AlterPartitionReceived(request, header.api_version, answer))
    result = await future
    if isinstance(result, ApiError):
        return AlterPartitionResponse(error_code=result.code)
    return result


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
