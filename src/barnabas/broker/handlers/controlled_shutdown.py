"""ControlledShutdown: the controller moves the leaders of a stopping broker to other brokers."""

from __future__ import annotations

from functools import partial

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.handlers.controller_queue import wait_for_controller
from barnabas.controller.events import ControlledShutdownReceived
from barnabas.errors import ApiError, ErrorCode
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)


async def handle(
    context: BrokerContext,
    request: ControlledShutdownRequest,
    _: RequestHeader,
    connection: Connection,
) -> ControlledShutdownResponse:
    if not context.security.access.is_broker(connection):
        return ControlledShutdownResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not context.controller.is_active:
        return ControlledShutdownResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    event = partial(ControlledShutdownReceived, request)
    result: ControlledShutdownResponse | ApiError
    result = await wait_for_controller(context.controller.queue, event)
    if isinstance(result, ApiError):  # this broker is no longer the controller
        return ControlledShutdownResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    return result
