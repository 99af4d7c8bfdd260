"""SyncGroup: the group leader sends the assignment, and every member gets its part of it."""

from __future__ import annotations

import asyncio

from barnabas.broker.bounded_work import Work
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.groups.group_events import SyncEvent
from barnabas.security.acl.model import Operation
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_MUST_BE_NAMED_SINCE = 5


def handle(
    context: BrokerContext, request: SyncGroupRequest, header: RequestHeader, connection: Connection
) -> Work[SyncGroupResponse | asyncio.Future[SyncGroupResponse]]:
    if header.api_version >= PROTOCOL_MUST_BE_NAMED_SINCE and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not context.security.access.allows_group(connection, Operation.READ, request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assignments: dict[str, bytes] = {}
    for each in request.assignments:
        assignments[each.member_id] = bytes(each.assignment)
        yield None
    sync = SyncEvent(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=assignments,
    )
    return context.groups.sync(request.group_id, sync)
