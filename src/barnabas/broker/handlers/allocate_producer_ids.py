"""AllocateProducerIds: the controller reserves a block of producer ids for a registered broker."""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.init_producer_id import reserve_block
from barnabas.broker.topic_admin.topics import to_api_error
from barnabas.errors import ApiError, ErrorCode, RegistryError, StorageError
from barnabas.model import BrokerId
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)


async def handle(
    context: BrokerContext,
    request: AllocateProducerIdsRequest,
    _: RequestHeader,
    connection: Connection,
) -> AllocateProducerIdsResponse:
    broker = BrokerId(request.broker_id)
    code = ErrorCode.NONE
    if not context.security.access.is_broker(connection):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif not context.controller.is_active:
        code = ErrorCode.NOT_CONTROLLER
    else:
        code = find_broker_error(context, broker, request.broker_epoch)
    if code:
        return AllocateProducerIdsResponse(error_code=code)
    try:
        block = await reserve_block(context.registry, broker)
    except (ApiError, RegistryError, StorageError) as error:
        return AllocateProducerIdsResponse(error_code=to_api_error(error).code)
    return AllocateProducerIdsResponse(
        producer_id_start=block.start, producer_id_len=block.end - block.start + 1
    )


def find_broker_error(context: BrokerContext, broker: BrokerId, epoch: int) -> ErrorCode:
    """Return the error of a broker that is not registered, or not with this epoch; NONE if it is."""
    registered = context.controller.context.broker_epochs.get(broker)
    if registered is None:
        return ErrorCode.BROKER_ID_NOT_REGISTERED
    return ErrorCode.NONE if registered == epoch else ErrorCode.STALE_BROKER_EPOCH
