"""FindCoordinator and InitProducerId."""

from __future__ import annotations

import asyncio
import logging

from barnabas.broker.connection import Connection
from barnabas.broker.parts import BrokerParts
from barnabas.errors import ApiError, ErrorCode
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.coordinator import (
    Coordinator,
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.wire.messages.produce import InitProducerIdRequest, InitProducerIdResponse

logger = logging.getLogger("barnabas.groups")

NO_COORDINATOR = "there are no consumer groups yet; consume by assigning partitions"


def find_coordinator(
    parts: BrokerParts,
    request: FindCoordinatorRequest,
    header: RequestHeader,
    connection: Connection,
) -> FindCoordinatorResponse:
    """No groups yet. It is answered all the same: librdkafka sends lz4 only to brokers that know this request.

    To clients the answer means "not now": they ask on and show nothing, so it is said here."""
    if request.key_type == CoordinatorType.GROUP and parts.group_warning.due(
        asyncio.get_running_loop().time()
    ):
        logger.warning(
            "client %r at %s:%s asks for a consumer group; %s",
            header.client_id or "",
            *connection.stream.peer,
            NO_COORDINATOR,
        )
    if header.api_version >= 4:
        return FindCoordinatorResponse(
            coordinators=tuple(
                Coordinator(
                    key=key,
                    error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    error_message=NO_COORDINATOR,
                )
                for key in request.coordinator_keys
            )
        )
    return FindCoordinatorResponse(
        error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        error_message=NO_COORDINATOR,
        node_id=-1,
        port=-1,
    )


async def init_producer_id(
    parts: BrokerParts, request: InitProducerIdRequest, header: RequestHeader, _: Connection
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        code = (
            ErrorCode.COORDINATOR_NOT_AVAILABLE
            if request.transactional_id
            else ErrorCode.INVALID_REQUEST
        )
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    try:
        producer_id = await parts.producer_ids.take()
    except ApiError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
