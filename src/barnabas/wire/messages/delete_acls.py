"""DeleteAcls: removes the ACLs that match filters. security/acl/model.py has the enums of the Int8 fields."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Essential, Int8, Int16, Int32, Since

LITERAL = 3


class DeleteAclsFilter(NamedTuple):
    """A name, principal or host that is None matches any."""

    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Annotated[Int8, Since(1), Essential] = LITERAL
    principal_filter: str | None = None
    host_filter: str | None = None
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsRequest(ApiMessage, frozen=True, kw_only=True):
    filters: tuple[DeleteAclsFilter, ...]


class DeleteAclsMatchingAcl(NamedTuple):
    """A deleted ACL, or one that could not be deleted."""

    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str
    pattern_type: Annotated[Int8, Since(1), Essential] = LITERAL
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(NamedTuple):
    error_code: Int16 = 0
    error_message: str | None = None
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = ()


class DeleteAclsResponse(ApiMessage, frozen=True, kw_only=True):
    """Results are in the order of the filters. An ACL is in the result of the first filter that it matches."""

    throttle_time_ms: Int32 = 0
    filter_results: tuple[DeleteAclsFilterResult, ...] = ()
