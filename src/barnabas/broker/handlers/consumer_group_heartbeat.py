"""ConsumerGroupHeartbeat: a member of the new consumer protocol joins, continues in or leaves its group.

Rejected with UNSUPPORTED_VERSION if group.coordinator.rebalance.protocols does not contain `consumer`.
"""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.security.acl.model import Operation
from barnabas.wire.consumer_protocol import PROTOCOL_TYPE
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

DESCRIBED_TOPICS_SINCE = 1


def handle(
    context: BrokerContext,
    request: ConsumerGroupHeartbeatRequest,
    header: RequestHeader,
    connection: Connection,
) -> object:
    """Return the response or an awaitable of it."""
    if PROTOCOL_TYPE not in context.config.group_coordinator_rebalance_protocols:
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    denial = find_denial(context, request, header.api_version, connection)
    if denial is not ErrorCode.NONE:
        return ConsumerGroupHeartbeatResponse(error_code=denial)
    return context.groups.consumers.heartbeat(
        request, header.client_id or "", f"/{connection.stream.peer[0]}"
    )


def find_denial(
    context: BrokerContext,
    request: ConsumerGroupHeartbeatRequest,
    version: int,
    connection: Connection,
) -> ErrorCode:
    """Return the error if the principal may not join the group, NONE otherwise.

    As in Kafka 4, version 1 also requires permission to describe the subscribed topics.
    """
    access = context.security.access
    if not access.allows_group(connection, Operation.READ, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if version >= DESCRIBED_TOPICS_SINCE and access.is_enabled:
        for name in request.subscribed_topic_names or ():
            if not access.allows_topic(connection, Operation.DESCRIBE, name):
                return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE
