"""Heartbeat: keeps a member in its group and reports a rebalance to it."""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.security.acl.model import Operation
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(
    context: BrokerContext, request: HeartbeatRequest, _: RequestHeader, connection: Connection
) -> HeartbeatResponse:
    if not context.security.access.allows_group(connection, Operation.READ, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    code = context.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=code)
