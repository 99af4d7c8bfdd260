"""DeleteGroups: deletes empty groups with their committed offsets."""

from __future__ import annotations

from barnabas.broker.bounded_work import Work
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ApiError, ErrorCode
from barnabas.security.acl.model import Operation
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(
    context: BrokerContext, request: DeleteGroupsRequest, _: RequestHeader, connection: Connection
) -> Work[DeleteGroupsResponse]:
    results = []
    seen: set[str] = set()
    for group_id in request.groups_names:
        yield None
        if group_id in seen:
            continue
        seen.add(group_id)
        try:
            if not context.security.access.allows_group(connection, Operation.DELETE, group_id):
                raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            context.groups.delete(group_id)
        except ApiError as error:
            results.append(DeletableGroupResult(group_id, error.code))
        else:
            results.append(DeletableGroupResult(group_id))
    return DeleteGroupsResponse(results=tuple(results))
