"""ConsumerGroupHeartbeat: rejected with UNSUPPORTED_VERSION, as in Kafka without the new group protocol."""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(
    _: BrokerContext,
    request: ConsumerGroupHeartbeatRequest,
    header: RequestHeader,
    connection: Connection,
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
