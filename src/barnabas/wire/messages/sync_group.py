"""SyncGroup: the group leader sends the assignment, and every member gets its part of it."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bytes, Essential, Int16, Int32, Since


class SyncGroupRequestAssignment(NamedTuple):
    member_id: str
    assignment: Bytes


class SyncGroupRequest(ApiMessage, frozen=True, kw_only=True):
    """The leader sends all assignments; the other members send none."""

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, Since(3), Essential] = None
    protocol_type: Annotated[str | None, Since(5)] = None
    protocol_name: Annotated[str | None, Since(5)] = None
    assignments: tuple[SyncGroupRequestAssignment, ...] = ()


class SyncGroupResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[str | None, Since(5)] = None
    protocol_name: Annotated[str | None, Since(5)] = None
    assignment: Bytes = b""
