"""ConsumerGroupHeartbeat: a member of the new consumer protocol joins, continues in or leaves its group.

Rejected with UNSUPPORTED_VERSION if group.coordinator.rebalance.protocols does not contain `consumer`.
"""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.wire.consumer_protocol import PROTOCOL_TYPE
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(
    context: BrokerContext,
    request: ConsumerGroupHeartbeatRequest,
    header: RequestHeader,
    connection: Connection,
) -> object:
    """Return the response or an awaitable of it."""
    if PROTOCOL_TYPE not in context.config.group_coordinator_rebalance_protocols:
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return context.groups.consumers.heartbeat(
        request, header.client_id or "", f"/{connection.stream.peer[0]}"
    )
