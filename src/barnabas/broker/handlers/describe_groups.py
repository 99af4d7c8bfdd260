"""DescribeGroups: the state and the members of groups that this broker coordinates."""

from __future__ import annotations

from barnabas.broker.bounded_work import Work
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ApiError, ErrorCode
from barnabas.groups.consumer_group import ConsumerGroup
from barnabas.groups.group import Group, GroupState
from barnabas.security.acl.model import Operation, ResourceType
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.wire.messages.metadata import NO_OPERATIONS


def handle(
    context: BrokerContext, request: DescribeGroupsRequest, _: RequestHeader, connection: Connection
) -> Work[DescribeGroupsResponse]:
    access = context.security.access
    found: dict[str, DescribedGroup] = {}
    groups = []
    for group_id in request.groups:
        if group_id not in found:
            operations = NO_OPERATIONS
            if request.include_authorized_operations:
                operations = access.authorized_operations(connection, ResourceType.GROUP, group_id)
            if access.allows_group(connection, Operation.DESCRIBE, group_id):
                found[group_id] = build_described_group(context, group_id, operations)
            else:
                found[group_id] = DescribedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id)
        groups.append(found[group_id])
        yield None
    return DescribeGroupsResponse(groups=tuple(groups))


def build_described_group(context: BrokerContext, group_id: str, operations: int) -> DescribedGroup:
    """Return the description of a group. As in Kafka, a group that does not exist is Dead, without an error.

    So is a group of the new consumer protocol, which ConsumerGroupDescribe describes.
    """
    try:
        group = context.groups.find(group_id, allow_empty_id=True)
    except ApiError as error:
        return DescribedGroup(error.code, group_id)
    if group is None or isinstance(group, ConsumerGroup):
        return DescribedGroup(
            ErrorCode.NONE, group_id, GroupState.DEAD, authorized_operations=operations
        )
    return DescribedGroup(
        ErrorCode.NONE,
        group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if group.state is GroupState.STABLE else "",
        members=describe_members(group),
        authorized_operations=operations,
    )


def describe_members(group: Group) -> tuple[DescribedGroupMember, ...]:
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
