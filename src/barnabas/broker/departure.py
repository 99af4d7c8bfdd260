"""A broker that leaves on purpose asks for it first: others take over what it leads while it still serves.

The controller is asked so many times, with a pause in between, until it says that nothing is left that somebody who is
still there could lead. Then, or after the last attempt, the broker goes. One that is alone has nobody to hand over to.
Nor has one without the registry: the controller, most likely without it as well, can decide nothing, and is asked once.
"""

from __future__ import annotations

import logging
from random import Random

from barnabas.broker.parts import BrokerParts
from barnabas.client.connection import BrokerConnection
from barnabas.errors import ErrorCode, WireError, reason
from barnabas.model import BrokerId
from barnabas.retry import Backoff
from barnabas.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from barnabas.world.ports import SessionState

logger = logging.getLogger("barnabas.broker")

TIMEOUT_SECONDS = 10.0
WITHOUT_REGISTRY_SECONDS = 2.0
BETWEEN_SECONDS = 0.1
FIRST_ATTEMPTS = 3
"""Follow one another quickly: the controller may just be changing."""


async def leave_in_peace(parts: BrokerParts, broker_id: BrokerId) -> None:
    parts.replicas.is_leaving = True
    retries = parts.config.controlled_shutdown_max_retries
    configured_s = parts.config.controlled_shutdown_retry_backoff_ms / 1000
    random = Random(broker_id)
    quick = Backoff(BETWEEN_SECONDS, BETWEEN_SECONDS, random=random)
    configured = Backoff(configured_s, configured_s, random=random)
    for attempt in range(FIRST_ATTEMPTS + retries):
        # Looked at each time: where all leave together, the last one learns only now that it is alone.
        if not any(other != broker_id for other in parts.metadata.brokers):
            return
        has_registry = parts.registry.state is SessionState.CONNECTED
        if not has_registry and parts.metadata.controller_id == broker_id:
            break
        timeout_s = TIMEOUT_SECONDS if has_registry else WITHOUT_REGISTRY_SECONDS
        try:
            left = await ask(parts, broker_id, timeout_s)
            if not left:
                return
            logger.info("still leading partitions=%d", left)
        except TimeoutError:
            logger.info("the controller does not let us leave within %g s", timeout_s)
        except (OSError, WireError) as error:
            logger.info("cannot ask the controller to leave error=%s", reason(error))
        if parts.registry.state is not SessionState.CONNECTED:
            break
        backoff = quick if attempt < FIRST_ATTEMPTS else configured
        await somebody_else_left(parts, backoff.next_s())
    logger.warning("leaving without having handed over all partitions")


async def somebody_else_left(parts: BrokerParts, timeout_s: float) -> None:
    """Or the time is over."""
    there = frozenset(parts.metadata.brokers)
    await parts.metadata.wait_until(lambda: parts.metadata.brokers.keys() != there, timeout_s)


async def ask(parts: BrokerParts, broker_id: BrokerId, timeout_s: float) -> int:
    """How many partitions we still lead that others, who are there, have a replica of."""
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
        timeout_s=timeout_s,
    )
    try:
        request = ControlledShutdownRequest(
            broker_id=broker_id, broker_epoch=parts.control.broker_epoch
        )
        response = await connection.exchange(
            request, ControlledShutdownResponse, timeout_s=timeout_s
        )
    finally:
        connection.close()
    if response.error_code:
        raise ConnectionError(ErrorCode(response.error_code).name)
    others = parts.metadata.brokers.keys() - {broker_id}
    return sum(
        not others.isdisjoint(replicas_of(parts, each)) for each in response.remaining_partitions
    )


def replicas_of(parts: BrokerParts, partition: RemainingPartition) -> tuple[BrokerId, ...]:
    topic = parts.metadata.topics.get(partition.topic_name)
    state = topic.partitions.get(partition.partition_index) if topic is not None else None
    return state.replicas if state is not None else ()
