"""CreateAcls: adds ACLs. security/acl/model.py has the enums of the Int8 fields."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Int8, Int16, Int32, Since

LITERAL = 3


class AclCreation(NamedTuple):
    resource_type: Int8
    resource_name: str
    resource_pattern_type: Annotated[Int8, Since(1)] = LITERAL
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(ApiMessage, frozen=True, kw_only=True):
    creations: tuple[AclCreation, ...]


class AclCreationResult(NamedTuple):
    error_code: Int16 = 0
    error_message: str | None = None


class CreateAclsResponse(ApiMessage, frozen=True, kw_only=True):
    """Results are in request order."""

    throttle_time_ms: Int32 = 0
    results: tuple[AclCreationResult, ...] = ()
