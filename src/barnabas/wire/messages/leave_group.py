"""LeaveGroup: members leave their group."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Essential, Int16, Int32, Since, Until


class MemberIdentity(NamedTuple):
    member_id: str
    group_instance_id: str | None = None
    reason: Annotated[str | None, Since(5)] = None


class LeaveGroupRequest(ApiMessage, frozen=True, kw_only=True):
    """One member up to version 2, several from version 3 on."""

    group_id: str
    member_id: Annotated[str, Until(2), Essential] = ""
    members: Annotated[tuple[MemberIdentity, ...], Since(3), Essential] = ()


class MemberResponse(NamedTuple):
    member_id: str
    group_instance_id: str | None = None
    error_code: Int16 = 0


class LeaveGroupResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[tuple[MemberResponse, ...], Since(3), Essential] = ()
