"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup; DescribeGroups, ListGroups, DeleteGroups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from barnabas.broker.bounded_work import Work, aside
from barnabas.broker.connection import Connection
from barnabas.broker.parts import BrokerParts
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.group import Group, GroupState, Protocol
from barnabas.groups.group_events import NO_REASON, Join, Sync
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.group_membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from barnabas.wire.messages.groups import (
    GROUP_OPERATIONS,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from barnabas.wire.messages.metadata import NO_OPERATIONS

CLASSIC = "classic"
"""The one type of group there is: members agree among themselves who reads what."""

IDS_GIVEN_FIRST_SINCE = 4
MEMBERS_LEAVE_TOGETHER_SINCE = 3
PROTOCOL_MAY_BE_NULL_SINCE = 7
PROTOCOL_MUST_BE_NAMED_SINCE = 5
ASSIGNMENT_MAY_BE_SKIPPED_SINCE = 9
LEAVING_PER_TURN = 500
PROTOCOLS_MAX = 1000
"""Of one member. Clients have a handful."""
NAME_MAX = 8000
"""Characters of a client id or instance id: the member id that begins with it must fit a string of 32 KB."""

JoinAnswer = JoinGroupResponse | asyncio.Future[JoinGroupResponse]


# ---- being a member


def join(
    parts: BrokerParts, request: JoinGroupRequest, header: RequestHeader, connection: Connection
) -> object:
    """A response, or an awaitable of it."""
    version = header.api_version
    if len(request.protocols) > PROTOCOLS_MAX:
        return refuse_join(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if max(len(header.client_id or ""), len(request.group_instance_id or "")) > NAME_MAX:
        return refuse_join(request, ErrorCode.INVALID_REQUEST)
    wish = Join(
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
        protocols=tuple(Protocol(each.name, bytes(each.metadata)) for each in request.protocols),
        must_know_id=version >= IDS_GIVEN_FIRST_SINCE and request.group_instance_id is None,
        may_skip_assignment=version >= ASSIGNMENT_MAY_BE_SKIPPED_SINCE,
        reason=request.reason or NO_REASON,
    )
    answer = parts.groups.join(request.group_id, wish)
    if version >= PROTOCOL_MAY_BE_NULL_SINCE:
        return answer
    return named_later(answer) if isinstance(answer, asyncio.Future) else named(answer)


def refuse_join(request: JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=request.member_id, protocol_name="")


async def named_later(answer: asyncio.Future[JoinGroupResponse]) -> JoinGroupResponse:
    return named(await answer)


def named(answer: JoinGroupResponse) -> JoinGroupResponse:
    """For old clients, to which no protocol is an empty name."""
    if answer.protocol_name is not None:
        return answer
    return JoinGroupResponse(error_code=answer.error_code, member_id=answer.member_id)


def sync(
    parts: BrokerParts, request: SyncGroupRequest, header: RequestHeader, _: Connection
) -> Work[SyncGroupResponse | asyncio.Future[SyncGroupResponse]]:
    if header.api_version >= PROTOCOL_MUST_BE_NAMED_SINCE and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assignments: dict[str, bytes] = {}
    for each in request.assignments:
        assignments[each.member_id] = bytes(each.assignment)
        yield None
    wish = Sync(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=assignments,
    )
    return parts.groups.sync(request.group_id, wish)


def heartbeat(
    parts: BrokerParts, request: HeartbeatRequest, _: RequestHeader, __: Connection
) -> HeartbeatResponse:
    code = parts.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=code)


def leave(
    parts: BrokerParts, request: LeaveGroupRequest, header: RequestHeader, _: Connection
) -> Work[LeaveGroupResponse]:
    together = header.api_version >= MEMBERS_LEAVE_TOGETHER_SINCE
    members = request.members if together else (MemberIdentity(request.member_id),)
    left: list[MemberResponse] = []
    try:
        for start in range(0, len(members), LEAVING_PER_TURN):
            leaving = members[start : start + LEAVING_PER_TURN]
            codes = parts.groups.leave(request.group_id, leaving)
            for each, code in zip(leaving, codes, strict=True):
                left.append(MemberResponse(each.member_id, each.group_instance_id, code))
            yield None
    except ApiError as error:
        return LeaveGroupResponse(error_code=error.code)
    if not together:
        return LeaveGroupResponse(error_code=left[0].error_code)
    return LeaveGroupResponse(members=tuple(left))


# ---- looking at groups


def describe(
    parts: BrokerParts, request: DescribeGroupsRequest, _: RequestHeader, __: Connection
) -> Work[DescribeGroupsResponse]:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NO_OPERATIONS
    found: dict[str, DescribedGroup] = {}
    groups = []
    for group_id in request.groups:
        if group_id not in found:
            found[group_id] = described(parts, group_id, operations)
        groups.append(found[group_id])
        yield None
    return DescribeGroupsResponse(groups=tuple(groups))


def described(parts: BrokerParts, group_id: str, operations: int) -> DescribedGroup:
    """Of one that does not exist it is said that it is Dead, and that this is no error."""
    try:
        group = parts.groups.find(group_id, may_be_empty=True)
    except ApiError as error:
        return DescribedGroup(error.code, group_id)
    if group is None:
        return DescribedGroup(
            ErrorCode.NONE, group_id, GroupState.DEAD, authorized_operations=operations
        )
    return DescribedGroup(
        ErrorCode.NONE,
        group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if group.state is GroupState.STABLE else "",
        members=described_members(group),
        authorized_operations=operations,
    )


def described_members(group: Group) -> tuple[DescribedGroupMember, ...]:
    is_stable = group.state is GroupState.STABLE
    return tuple(
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol or "") if is_stable else b"",
            member_assignment=member.assignment if is_stable else b"",
        )
        for member in group.members.values()
    )


def list_all(
    parts: BrokerParts, request: ListGroupsRequest, _: RequestHeader, __: Connection
) -> Work[ListGroupsResponse]:
    """The groups that this broker coordinates. While some are being loaded, the others."""
    if parts.groups.is_stopping:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    is_loading = parts.groups.store.loading
    states = yield from aside(len(request.states_filter), partial(lower, request.states_filter))
    types = yield from aside(len(request.types_filter), partial(lower, request.types_filter))
    listed = []
    for group in list(parts.groups.groups.values()):
        if (not states or group.state.lower() in states) and (not types or CLASSIC in types):
            listed.append(
                ListedGroup(group.group_id, group.protocol_type or "", group.state, CLASSIC)
            )
        yield None
    return ListGroupsResponse(
        error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE,
        groups=tuple(listed),
    )


def lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def delete(
    parts: BrokerParts, request: DeleteGroupsRequest, _: RequestHeader, __: Connection
) -> Work[DeleteGroupsResponse]:
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        try:
            parts.groups.delete(group_id)
        except ApiError as error:
            results.append(DeletableGroupResult(group_id, error.code))
        else:
            results.append(DeletableGroupResult(group_id))
        yield None
    return DeleteGroupsResponse(results=tuple(results))
