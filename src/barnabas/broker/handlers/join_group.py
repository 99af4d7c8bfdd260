"""JoinGroup: a member joins its group, or rejoins it in a rebalance."""

from __future__ import annotations

import asyncio

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.groups.group import AssignmentProtocol
from barnabas.groups.group_changes import NO_REASON
from barnabas.groups.group_events import JoinEvent
from barnabas.security.acl.model import Operation
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

MEMBER_ID_REQUIRED_SINCE = 4
PROTOCOL_MAY_BE_NULL_SINCE = 7
ASSIGNMENT_MAY_BE_SKIPPED_SINCE = 9
PROTOCOLS_MAX = 1000
"""Maximum number of protocols of one member. Clients send a few."""
NAME_MAX = 8000
"""Maximum length of a name. It must fit into 32 KB, also in a member id that starts with a client or instance id."""


def handle(
    context: BrokerContext, request: JoinGroupRequest, header: RequestHeader, connection: Connection
) -> object:
    """Return the response or an awaitable of it."""
    version = header.api_version
    if not context.security.access.allows_group(connection, Operation.READ, request.group_id):
        return JoinGroupResponse(
            error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED,
            protocol_name=None if version >= PROTOCOL_MAY_BE_NULL_SINCE else "",
        )
    if len(request.protocols) > PROTOCOLS_MAX:
        return reject_join(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    names = [header.client_id or "", request.group_instance_id or "", request.protocol_type]
    names += [each.name for each in request.protocols]
    if max(map(len, names)) > NAME_MAX:
        return reject_join(request, ErrorCode.INVALID_REQUEST)
    join = JoinEvent(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        new_member_id="",
        client_id=header.client_id or "",
        client_host=f"/{connection.stream.peer[0]}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=(
            request.rebalance_timeout_ms if version else request.session_timeout_ms
        ),
        protocol_type=request.protocol_type,
        protocols=tuple(
            AssignmentProtocol(each.name, bytes(each.metadata)) for each in request.protocols
        ),
        requires_member_id=version >= MEMBER_ID_REQUIRED_SINCE
        and request.group_instance_id is None,
        supports_skip_assignment=version >= ASSIGNMENT_MAY_BE_SKIPPED_SINCE,
        reason=request.reason or NO_REASON,
    )
    response = context.groups.join(request.group_id, join)
    if version >= PROTOCOL_MAY_BE_NULL_SINCE:
        return response
    return (
        adapt_later_to_old_client(response)
        if isinstance(response, asyncio.Future)
        else adapt_to_old_client(response)
    )


def reject_join(request: JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=request.member_id, protocol_name="")


async def adapt_later_to_old_client(
    response: asyncio.Future[JoinGroupResponse],
) -> JoinGroupResponse:
    return adapt_to_old_client(await response)


def adapt_to_old_client(response: JoinGroupResponse) -> JoinGroupResponse:
    """Return the response for old clients, with an empty name instead of a null protocol."""
    if response.protocol_name is not None:
        return response
    return JoinGroupResponse(error_code=response.error_code, member_id=response.member_id)
