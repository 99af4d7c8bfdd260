"""Heartbeat: keeps a member in its group and reports a rebalance to it."""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(
    context: BrokerContext, request: HeartbeatRequest, _: RequestHeader, __: Connection
) -> HeartbeatResponse:
    code = context.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=code)
