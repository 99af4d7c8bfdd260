"""DescribeAcls: the ACLs that match a filter."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.security.acl_requests import SECURITY_DISABLED, build_filter
from barnabas.broker.topic_admin.topics import error_fields
from barnabas.errors import ApiError, ErrorCode
from barnabas.security.acl.filters import AclFilter
from barnabas.security.acl.model import Acl, Operation, PatternType, ResourcePattern
from barnabas.tasks import in_thread_if_large
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


async def handle(
    context: BrokerContext,
    request: DescribeAclsRequest,
    header: RequestHeader,
    connection: Connection,
) -> DescribeAclsResponse:
    wanted = build_filter(request, header.api_version)
    security = context.security
    try:
        security.access.require_cluster(connection, Operation.DESCRIBE)
        store = security.authorization.store
        if store is None:
            raise SECURITY_DISABLED
        acls = tuple(store.authorizer.index)
        resources = await in_thread_if_large(len(acls), describe, acls, wanted)
        if header.api_version == 0 and has_prefixed(resources):
            why = "version 0 cannot describe prefixed patterns"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, why)
    except ApiError as error:
        code, message = error_fields(error)
        return DescribeAclsResponse(error_code=code, error_message=message)
    return DescribeAclsResponse(resources=resources)


def describe(acls: Iterable[Acl], wanted: AclFilter) -> tuple[DescribeAclsResource, ...]:
    found: dict[ResourcePattern, list[AclDescription]] = {}
    for acl in acls:
        if wanted.matches(acl):
            found.setdefault(acl.pattern, []).append(AclDescription(*acl.entry))
    return tuple(
        DescribeAclsResource(pattern.type, pattern.name, pattern.pattern, tuple(entries))
        for pattern, entries in found.items()
    )


def has_prefixed(resources: Iterable[DescribeAclsResource]) -> bool:
    return any(each.pattern_type == PatternType.PREFIXED for each in resources)
