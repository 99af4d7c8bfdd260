"""DeleteAcls: removes the ACLs that match filters. Any broker serves it."""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.security.acl_requests import SECURITY_DISABLED, build_filter
from barnabas.broker.topic_admin.topics import error_fields, to_api_error
from barnabas.errors import ApiError
from barnabas.security.acl.model import Operation
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def handle(
    context: BrokerContext,
    request: DeleteAclsRequest,
    header: RequestHeader,
    connection: Connection,
) -> DeleteAclsResponse:
    filters = [build_filter(each, header.api_version) for each in request.filters]
    security = context.security
    try:
        security.access.require_cluster(connection, Operation.ALTER)
        store = security.authorization.store
        if store is None:
            raise SECURITY_DISABLED
    except ApiError as error:
        failed = DeleteAclsFilterResult(*error_fields(error))
        return DeleteAclsResponse(filter_results=(failed,) * len(filters))
    deleted, errors = await store.delete(filters)
    results: list[list[DeleteAclsMatchingAcl]] = [[] for _ in filters]
    for acl, at in deleted.items():
        failure = errors.get(acl)
        results[at].append(
            DeleteAclsMatchingAcl(
                *error_fields(None if failure is None else to_api_error(failure)),
                acl.pattern.type,
                acl.pattern.name,
                acl.pattern.pattern,
                acl.entry.principal,
                acl.entry.host,
                acl.entry.operation,
                acl.entry.permission,
            )
        )
    return DeleteAclsResponse(
        filter_results=tuple(DeleteAclsFilterResult(0, None, tuple(each)) for each in results)
    )
