"""CreateAcls: adds ACLs. Any broker serves it."""

from __future__ import annotations

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.security.acl_requests import SECURITY_DISABLED, build_acl, check_creations
from barnabas.broker.topic_admin.topics import error_fields, to_api_error
from barnabas.errors import ApiError, RegistryError, StorageError
from barnabas.security.acl.model import AccessControlEntry, Acl, Operation, ResourcePattern
from barnabas.tasks import Turns
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


async def handle(
    context: BrokerContext,
    request: CreateAclsRequest,
    header: RequestHeader,
    connection: Connection,
) -> CreateAclsResponse:
    check_creations(request.creations)
    security = context.security
    try:
        security.access.require_cluster(connection, Operation.ALTER)
        store = security.authorization.store
        if store is None:
            raise SECURITY_DISABLED
    except ApiError as error:
        failed = AclCreationResult(*error_fields(error))
        return CreateAclsResponse(results=(failed,) * len(request.creations))
    acls: list[Acl | ApiError] = []
    turns = Turns()
    for creation in request.creations:
        try:
            acls.append(build_acl(creation))
        except ApiError as error:
            acls.append(error)
        await turns.yield_if_due()
    by_pattern: dict[ResourcePattern, list[AccessControlEntry]] = {}
    for acl in acls:
        if isinstance(acl, Acl):
            by_pattern.setdefault(acl.pattern, []).append(acl.entry)
    errors: dict[ResourcePattern, ApiError] = {}
    for pattern, entries in by_pattern.items():
        try:
            await store.add(pattern, entries)
        except (ApiError, RegistryError, StorageError) as failure:
            errors[pattern] = to_api_error(failure)
    results = (each if isinstance(each, ApiError) else errors.get(each.pattern) for each in acls)
    return CreateAclsResponse(
        results=tuple(AclCreationResult(*error_fields(error)) for error in results)
    )
