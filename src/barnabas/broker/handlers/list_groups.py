"""ListGroups: the groups that this broker coordinates and has loaded."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.broker.bounded_work import Work, call_in_thread_if_large
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.groups.consumer_group import ConsumerGroup
from barnabas.groups.coordinator_timers import AnyGroup
from barnabas.security.acl.model import Operation
from barnabas.wire.consumer_protocol import PROTOCOL_TYPE
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC = "classic"
"""Type of a group whose leader assigns the partitions."""
CONSUMER = "consumer"
"""Type of a group of the new consumer protocol, in which the broker assigns the partitions."""


def handle(
    context: BrokerContext, request: ListGroupsRequest, _: RequestHeader, connection: Connection
) -> Work[ListGroupsResponse]:
    if context.groups.is_stopping:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    filters = request.states_filter, request.types_filter
    states, types = yield from call_in_thread_if_large(sum(map(len, filters)), lower_all, filters)
    groups = []
    access = context.security.access
    sees_all = access.allows_cluster(connection, Operation.DESCRIBE, is_audited=False)
    is_loading = bool(context.groups.store.loading)  # the load may end between two turns
    for group in list(context.groups.groups.values()):
        yield None  # lets other requests run
        if not sees_all and not access.allows_group(
            connection, Operation.DESCRIBE, group.group_id, is_audited=False
        ):
            continue
        listed = to_listed_group(group)
        if (not states or listed.group_state.lower() in states) and (
            not types or listed.group_type in types
        ):
            groups.append(listed)
    return ListGroupsResponse(
        error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE,
        groups=tuple(groups),
    )


def to_listed_group(group: AnyGroup) -> ListedGroup:
    if isinstance(group, ConsumerGroup):
        return ListedGroup(group.group_id, PROTOCOL_TYPE, group.state, CONSUMER)
    return ListedGroup(group.group_id, group.protocol_type or "", group.state, CLASSIC)


def lower_all(filters: Iterable[Iterable[str]]) -> list[set[str]]:
    return [{name.lower() for name in names} for names in filters]
