"""InitProducerId: a producer id for an idempotent producer, or the id and the next epoch of a transactional one."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.client.connection import BrokerConnection
from barnabas.errors import ApiError, ErrorCode, RemoteWireError, reason
from barnabas.metadata.znodes import ProducerIdBlock
from barnabas.model import BrokerId
from barnabas.security.acl.model import Operation, ResourceType
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

logger = logging.getLogger("barnabas.producers")

PRODUCER_FENCED_SINCE = 4
ALLOCATE_SECONDS = 2.0
"""Timeout to connect to the controller, and again for its response."""


async def handle(
    context: BrokerContext,
    request: InitProducerIdRequest,
    header: RequestHeader,
    connection: Connection,
) -> InitProducerIdResponse:
    denial = find_denial(context, request, connection)
    if denial is not ErrorCode.NONE:
        return InitProducerIdResponse(error_code=denial, producer_epoch=-1)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    take_producer_id = partial(context.producer_ids.take, partial(request_block, context))
    if request.transactional_id is not None:
        return await init_transactional(context, request, header, connection, take_producer_id)
    try:
        producer_id = await take_producer_id()
    except ApiError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def find_denial(
    context: BrokerContext, request: InitProducerIdRequest, connection: Connection
) -> ErrorCode:
    """Return the error if the principal may not have a producer id, NONE otherwise.

    An idempotent producer needs write permission for any topic, or IdempotentWrite on the cluster.
    """
    access = context.security.access
    if request.transactional_id is not None:
        if not access.allows_transactional_id(
            connection, Operation.WRITE, request.transactional_id
        ):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not access.allows_cluster(
        connection, Operation.IDEMPOTENT_WRITE, is_audited=False
    ) and not access.allows_any(connection, Operation.WRITE, ResourceType.TOPIC):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.NONE


async def init_transactional(
    context: BrokerContext,
    request: InitProducerIdRequest,
    header: RequestHeader,
    connection: Connection,
    take_producer_id: Callable[[], Awaitable[int]],
) -> InitProducerIdResponse:
    from barnabas.transactions.transaction_changes import TransactionClient
    from barnabas.transactions.transaction_events import ProducerIdentity, client_error

    identity = ProducerIdentity(request.producer_id, request.producer_epoch)
    answer = await context.transactions.init_producer_id(
        request.transactional_id or "",
        None if request.producer_id < 0 else identity,
        timeout_ms=request.transaction_timeout_ms,
        take_producer_id=take_producer_id,
        client=TransactionClient(header.client_id, connection.stream.peer[0]),
    )
    supports_fenced = header.api_version >= PRODUCER_FENCED_SINCE
    code = client_error(answer.code, supports_fenced=supports_fenced)
    return InitProducerIdResponse(
        error_code=code, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
    )


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
