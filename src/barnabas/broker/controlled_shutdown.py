"""Controlled shutdown: before a broker stops, it asks the controller to move its leaders to other brokers.

The broker repeats the request after a pause, until it leads no partition that another running broker could lead. It
gives up after the last attempt. The only broker of a cluster sends no request. Without the registry the broker sends at
most one: the controller has most likely lost the registry as well and cannot elect leaders.
"""

from __future__ import annotations

import logging
from random import Random

from barnabas.broker.context import BrokerContext
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
QUICK_RETRY_SECONDS = 0.1
QUICK_ATTEMPTS = 3
"""Number of attempts with a short pause: a new controller may be about to be elected."""


async def shut_down_controlled(context: BrokerContext, broker_id: BrokerId) -> None:
    """Move as many leaders as possible to other brokers. The broker keeps serving meanwhile."""
    context.replicas.is_in_controlled_shutdown = True
    retries = context.config.controlled_shutdown_max_retries
    configured_s = context.config.controlled_shutdown_retry_backoff_ms / 1000
    random = Random(broker_id)
    quick = Backoff(QUICK_RETRY_SECONDS, QUICK_RETRY_SECONDS, random=random)
    configured = Backoff(configured_s, configured_s, random=random)
    for attempt in range(QUICK_ATTEMPTS + retries):
        # Checked in each attempt: if all brokers stop together, the others may have stopped by now.
        if not any(other != broker_id for other in context.metadata.brokers):
            return
        has_registry = context.registry.state is SessionState.CONNECTED
        if not has_registry and context.metadata.controller_id == broker_id:
            break
        timeout_s = TIMEOUT_SECONDS if has_registry else WITHOUT_REGISTRY_SECONDS
        try:
            remaining = await send_request(context, broker_id, timeout_s)
            if not remaining:
                return
            logger.info("controlled shutdown incomplete, still leading partitions=%d", remaining)
        except TimeoutError:
            logger.info("controlled shutdown timed out after %g s", timeout_s)
        except (OSError, WireError) as error:
            logger.info("controlled shutdown failed error=%s", reason(error))
        if context.registry.state is not SessionState.CONNECTED:
            break
        backoff = quick if attempt < QUICK_ATTEMPTS else configured
        await wait_for_broker_change(context, backoff.next_s())
    logger.warning("controlled shutdown incomplete, stopping anyway")


async def wait_for_broker_change(context: BrokerContext, timeout_s: float) -> None:
    """Wait until another broker has started or stopped, or until the timeout."""
    before = frozenset(context.metadata.brokers)
    await context.metadata.wait_until(lambda: context.metadata.brokers.keys() != before, timeout_s)


async def send_request(context: BrokerContext, broker_id: BrokerId, timeout_s: float) -> int:
    """Send ControlledShutdown. Return the number of partitions led here that another running broker could lead."""
    endpoint = context.metadata.endpoint_of(
        context.metadata.controller_id, context.config.inter_broker_listener
    )
    if endpoint is None:
        raise ConnectionError("no controller is known")
    connection = await BrokerConnection.open(
        context.network,
        endpoint.host,
        endpoint.port,
        client_id=str(broker_id),
        timeout_s=timeout_s,
    )
    try:
        request = ControlledShutdownRequest(
            broker_id=broker_id, broker_epoch=context.control.broker_epoch
        )
        response = await connection.exchange(
            request, ControlledShutdownResponse, timeout_s=timeout_s
        )
    finally:
        connection.close()
    if response.error_code:
        raise ConnectionError(ErrorCode(response.error_code).name)
    others = context.metadata.brokers.keys() - {broker_id}
    return sum(
        not others.isdisjoint(replicas_of(context, each)) for each in response.remaining_partitions
    )


def replicas_of(context: BrokerContext, partition: RemainingPartition) -> tuple[BrokerId, ...]:
    topic = context.metadata.topics.get(partition.topic_name)
    state = topic.partitions.get(partition.partition_index) if topic is not None else None
    return state.replicas if state is not None else ()
