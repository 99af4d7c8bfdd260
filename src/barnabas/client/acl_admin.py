"""Admin client for ACLs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.core import error_of, raise_if
from barnabas.errors import ApiError
from barnabas.security.acl.filters import AclFilter
from barnabas.security.acl.model import (
    AccessControlEntry,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from barnabas.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from barnabas.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

ANY_ACL = AclFilter()


class DeletedAcl(NamedTuple):
    """An ACL that matched a filter. `error` is why it was not deleted, or None."""

    acl: Acl
    error: ApiError | None


class AclAdmin:
    """Methods raise ApiError if a whole request fails."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def describe_acls(self, wanted: AclFilter = ANY_ACL) -> list[Acl]:
        """Return the ACLs that match, in the order of their resources and principals."""
        response = self.cluster.ask_any(
            DescribeAclsRequest(
                resource_type_filter=wanted.pattern.type,
                resource_name_filter=wanted.pattern.name,
                pattern_type_filter=wanted.pattern.pattern,
                principal_filter=wanted.entry.principal,
                host_filter=wanted.entry.host,
                operation=wanted.entry.operation,
                permission_type=wanted.entry.permission,
            ),
            DescribeAclsResponse,
        )
        raise_if(response.error_code, response.error_message)
        return sorted(
            Acl(
                pattern_of(resource.resource_type, resource.resource_name, resource.pattern_type),
                entry_of(each.principal, each.host, each.operation, each.permission_type),
            )
            for resource in response.resources
            for each in resource.acls
        )

    def create_acls(self, acls: Sequence[Acl]) -> list[ApiError | None]:
        """Create ACLs. An existing ACL is no error. Results are in request order."""
        response = self.cluster.ask_controller(
            CreateAclsRequest(
                creations=tuple(
                    AclCreation(
                        acl.pattern.type,
                        acl.pattern.name,
                        acl.pattern.pattern,
                        acl.entry.principal,
                        acl.entry.host,
                        acl.entry.operation,
                        acl.entry.permission,
                    )
                    for acl in acls
                )
            ),
            CreateAclsResponse,
            codes=lambda answer: [each.error_code for each in answer.results],
        )
        return [error_of(each.error_code, each.error_message) for each in response.results]

    def delete_acls(self, filters: Sequence[AclFilter]) -> list[list[DeletedAcl]]:
        """Delete the ACLs that match. Results are in the order of the filters. Raises the first error of a filter."""
        response = self.cluster.ask_controller(
            DeleteAclsRequest(filters=tuple(map(wire_filter, filters))),
            DeleteAclsResponse,
            codes=lambda answer: [each.error_code for each in answer.filter_results],
        )
        results = []
        for each in response.filter_results:
            raise_if(each.error_code, each.error_message)
            results.append([deleted_acl(matching) for matching in each.matching_acls])
        return results


def wire_filter(wanted: AclFilter) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        wanted.pattern.type,
        wanted.pattern.name,
        wanted.pattern.pattern,
        wanted.entry.principal,
        wanted.entry.host,
        wanted.entry.operation,
        wanted.entry.permission,
    )


def deleted_acl(found: DeleteAclsMatchingAcl) -> DeletedAcl:
    acl = Acl(
        pattern_of(found.resource_type, found.resource_name, found.pattern_type),
        entry_of(found.principal, found.host, found.operation, found.permission_type),
    )
    return DeletedAcl(acl, error_of(found.error_code, found.error_message))


def pattern_of(resource_type: int, name: str, pattern: int) -> ResourcePattern:
    return ResourcePattern(
        ResourceType.from_code(resource_type), name, PatternType.from_code(pattern)
    )


def entry_of(principal: str, host: str, operation: int, permission: int) -> AccessControlEntry:
    return AccessControlEntry(
        principal, host, Operation.from_code(operation), Permission.from_code(permission)
    )
