"""ListGroups: the groups that this broker coordinates and has loaded."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.broker.bounded_work import Work, call_in_thread_if_large
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC = "classic"
"""The only supported group type: the group leader assigns the partitions."""


def handle(
    context: BrokerContext, request: ListGroupsRequest, _: RequestHeader, __: Connection
) -> Work[ListGroupsResponse]:
    if context.groups.is_stopping:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    filters = request.states_filter, request.types_filter
    states, types = yield from call_in_thread_if_large(sum(map(len, filters)), lower_all, filters)
    groups = []
    is_loading = bool(context.groups.store.loading)  # the load may end between two turns
    for group in list(context.groups.groups.values()):
        if (not states or group.state.lower() in states) and (not types or CLASSIC in types):
            groups.append(
                ListedGroup(group.group_id, group.protocol_type or "", group.state, CLASSIC)
            )
        yield None  # lets other requests run
    return ListGroupsResponse(
        error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE,
        groups=tuple(groups),
    )


def lower_all(filters: Iterable[Iterable[str]]) -> list[set[str]]:
    return [{name.lower() for name in names} for names in filters]
