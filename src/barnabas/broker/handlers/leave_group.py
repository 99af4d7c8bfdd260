"""LeaveGroup: members leave their group."""

from __future__ import annotations

from barnabas.broker.bounded_work import Work
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ApiError, ErrorCode
from barnabas.security.acl.model import Operation
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

MANY_MEMBERS_SINCE = 3
LEAVING_PER_TURN = 500


def handle(
    context: BrokerContext,
    request: LeaveGroupRequest,
    header: RequestHeader,
    connection: Connection,
) -> Work[LeaveGroupResponse]:
    if not context.security.access.allows_group(connection, Operation.READ, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    is_batch = header.api_version >= MANY_MEMBERS_SINCE
    members = request.members if is_batch else (MemberIdentity(request.member_id),)
    left: list[MemberResponse] = []
    try:
        for start in range(0, len(members), LEAVING_PER_TURN):
            leaving = members[start : start + LEAVING_PER_TURN]
            codes = context.groups.leave(request.group_id, leaving)
            for each, code in zip(leaving, codes, strict=True):
                left.append(MemberResponse(each.member_id, each.group_instance_id, code))
            yield None
    except ApiError as error:
        return LeaveGroupResponse(error_code=error.code)
    if not is_batch:
        return LeaveGroupResponse(error_code=left[0].error_code)
    return LeaveGroupResponse(members=tuple(left))
