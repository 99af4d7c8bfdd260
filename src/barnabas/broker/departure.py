"""A broker that leaves on purpose asks for it first: others take over what it leads while it still serves.

The controller is asked so many times, with a pause in between, until it says that nothing is left that somebody else
could lead. Then, or after the last attempt, the broker goes. One that is alone has nobody to hand over to.
"""

from __future__ import annotations

import asyncio
import logging

from barnabas.broker.parts import BrokerParts
from barnabas.client.connection import BrokerConnection
from barnabas.errors import ErrorCode, WireError
from barnabas.model import BrokerId
from barnabas.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

logger = logging.getLogger("barnabas.broker")

TIMEOUT_SECONDS = 10.0
BETWEEN_SECONDS = 0.1
FIRST_ATTEMPTS = 3
"""Follow one another quickly: the controller may just be changing."""


async def leave_in_peace(parts: BrokerParts, broker_id: BrokerId) -> None:
    retries = parts.config.controlled_shutdown_max_retries
    backoff_s = parts.config.controlled_shutdown_retry_backoff_ms / 1000
    for attempt in range(FIRST_ATTEMPTS + retries):
        # Looked at each time: where all leave together, the last one learns only now that it is alone.
        if not any(other != broker_id for other in parts.metadata.brokers):
            return
        try:
            left = await ask(parts, broker_id)
            if not left:
                return
            logger.info("still leading partitions=%d", left)
        except (OSError, TimeoutError, WireError) as error:
            logger.info("cannot ask the controller to leave error=%s", error)
        await asyncio.sleep(BETWEEN_SECONDS if attempt < FIRST_ATTEMPTS else backoff_s)
    logger.warning("leaving without having handed over all partitions")


async def ask(parts: BrokerParts, broker_id: BrokerId) -> int:
    """How many partitions we still lead that others could."""
    endpoint = parts.metadata.endpoint_of(
        parts.metadata.controller_id, parts.config.inter_broker_listener
    )
    if endpoint is None:
        raise ConnectionError("no controller is known")
    connection = await BrokerConnection.open(
        parts.network,
        endpoint.host,
        endpoint.port,
        client_id=str(broker_id),
        timeout_s=TIMEOUT_SECONDS,
    )
    try:
        request = ControlledShutdownRequest(
            broker_id=broker_id, broker_epoch=parts.control.broker_epoch
        )
        response = await connection.exchange(
            request, ControlledShutdownResponse, timeout_s=TIMEOUT_SECONDS
        )
    finally:
        connection.close()
    if response.error_code:
        raise ConnectionError(ErrorCode(response.error_code).name)
    return len(response.remaining_partitions)
