"""The ACLs and filters in requests: conversion and validation, as in Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.security.acl import znodes
from barnabas.security.acl.filters import AclFilter, EntryFilter, PatternFilter
from barnabas.security.acl.model import (
    CLUSTER_NAME,
    AccessControlEntry,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.wire.messages.create_acls import AclCreation

SECURITY_DISABLED = ApiError(
    ErrorCode.SECURITY_DISABLED,
    "the broker has no authorizer with ACLs; set authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
)


class RequestedFilter(Protocol):
    """The fields of DescribeAcls, and of a filter of DeleteAcls."""

    @property
    def resource_type_filter(self) -> int: ...
    @property
    def resource_name_filter(self) -> str | None: ...
    @property
    def pattern_type_filter(self) -> int: ...
    @property
    def principal_filter(self) -> str | None: ...
    @property
    def host_filter(self) -> str | None: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


def build_filter(requested: RequestedFilter, version: int) -> AclFilter:
    """Return the filter. Raises RemoteWireError if it has the number of UNKNOWN: Kafka closes the connection too."""
    require_known(
        requested.resource_type_filter,
        requested.pattern_type_filter,
        requested.operation,
        requested.permission_type,
    )
    return AclFilter(
        PatternFilter(
            ResourceType.from_code(requested.resource_type_filter),
            requested.resource_name_filter,
            PatternType.LITERAL
            if version == 0
            else PatternType.from_code(requested.pattern_type_filter),
        ),
        EntryFilter(
            requested.principal_filter,
            requested.host_filter,
            Operation.from_code(requested.operation),
            Permission.from_code(requested.permission_type),
        ),
    )


def check_creations(creations: Iterable[AclCreation]) -> None:
    """Raise RemoteWireError if an ACL has the number of UNKNOWN: Kafka closes the connection too."""
    for each in creations:
        require_known(
            each.resource_type, each.resource_pattern_type, each.operation, each.permission_type
        )


def require_known(*codes: int) -> None:
    if 0 in codes:
        raise RemoteWireError("ACLs with an UNKNOWN type, operation or permission")


def build_acl(creation: AclCreation) -> Acl:
    """Return the ACL to create. Raises ApiError with INVALID_REQUEST if it is invalid."""
    pattern = ResourcePattern(
        ResourceType.from_code(creation.resource_type),
        creation.resource_name,
        PatternType.from_code(creation.resource_pattern_type),
    )
    entry = AccessControlEntry(
        creation.principal,
        creation.host,
        Operation.from_code(creation.operation),
        Permission.from_code(creation.permission_type),
    )
    error = find_error(pattern, entry)
    if error:
        raise ApiError(ErrorCode.INVALID_REQUEST, error)
    return Acl(pattern, entry)


def find_error(pattern: ResourcePattern, entry: AccessControlEntry) -> str:
    """Return why an ACL cannot be created, or an empty string."""
    if pattern.type not in znodes.TYPES:
        return "the resource type must be one of Topic, Group, Cluster, TransactionalId, DelegationToken, User"
    if pattern.pattern not in znodes.STORES:
        return "the pattern type must be LITERAL or PREFIXED"
    if entry.operation in (Operation.UNKNOWN, Operation.ANY):
        return "the operation must be All or one operation"
    if entry.permission not in (Permission.ALLOW, Permission.DENY):
        return "the permission must be Allow or Deny"
    if pattern.type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return f"the only name of a Cluster resource is {CLUSTER_NAME}"
    if not znodes.is_valid_name(pattern.name):
        return f"invalid resource name {pattern.name!r:.300}"
    if ":" not in entry.principal:
        return f"{entry.principal!r:.300} is not of the form User:name"
    return ""
