"""InitProducerId: a producer id for an idempotent producer. Transactions are not supported."""

from __future__ import annotations

import logging
from functools import partial

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.client.connection import BrokerConnection
from barnabas.errors import ApiError, ErrorCode, RemoteWireError, reason
from barnabas.metadata.znodes import ProducerIdBlock
from barnabas.model import BrokerId
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

logger = logging.getLogger("barnabas.producers")

ALLOCATE_SECONDS = 2.0
"""Timeout to connect to the controller, and again for its response."""


async def handle(
    context: BrokerContext, request: InitProducerIdRequest, header: RequestHeader, _: Connection
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        # Transactions are not supported. Clients report this error to their user.
        code = (
            ErrorCode.UNSUPPORTED_VERSION if request.transactional_id else ErrorCode.INVALID_REQUEST
        )
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    try:
        producer_id = await context.producer_ids.take(partial(request_block, context))
    except ApiError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def request_block(context: BrokerContext) -> ProducerIdBlock | None:
    """Request a block of producer ids from the controller. Return None if this broker must reserve one itself."""
    if context.controller.is_active:
        return None
    controller = context.metadata.controller_id
    endpoint = context.metadata.endpoint_of(controller, context.config.inter_broker_listener)
    if endpoint is None:
        return None
    broker = BrokerId(context.config.broker_id)
    try:
        connection = await BrokerConnection.open(
            context.network,
            endpoint.host,
            endpoint.port,
            client_id=str(broker),
            timeout_s=ALLOCATE_SECONDS,
        )
        try:
            response = await connection.exchange(
                AllocateProducerIdsRequest(
                    broker_id=broker, broker_epoch=context.control.broker_epoch
                ),
                AllocateProducerIdsResponse,
                timeout_s=ALLOCATE_SECONDS,
            )
        finally:
            connection.close()
    except (ConnectionError, TimeoutError, RemoteWireError) as error:
        logger.warning(
            "cannot request producer ids controller=%d error=%s", controller, reason(error)
        )
        return None
    if response.error_code or response.producer_id_len < 1:
        code = ErrorCode(response.error_code).name
        logger.warning(
            "controller returned no producer ids controller=%d error=%s", controller, code
        )
        return None
    start = response.producer_id_start
    return ProducerIdBlock(broker=broker, start=start, end=start + response.producer_id_len - 1)
