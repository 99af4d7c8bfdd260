"""InitProducerId: a producer id for an idempotent producer. Transactions are not supported."""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ApiError, ErrorCode
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


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
        producer_id = await context.producer_ids.take()
    except ApiError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
