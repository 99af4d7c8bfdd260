"""DescribeAcls: the ACLs that match a filter. security/acl/model.py has the enums of the Int8 fields."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Essential, Int8, Int16, Int32, Since

LITERAL = 3


class DescribeAclsRequest(ApiMessage, frozen=True, kw_only=True):
    """A name, principal or host that is None matches any."""

    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Annotated[Int8, Since(1), Essential] = LITERAL
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8


class AclDescription(NamedTuple):
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


class DescribeAclsResource(NamedTuple):
    resource_type: Int8
    resource_name: str
    pattern_type: Annotated[Int8, Since(1), Essential] = LITERAL
    acls: tuple[AclDescription, ...] = ()


class DescribeAclsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    resources: tuple[DescribeAclsResource, ...] = ()
