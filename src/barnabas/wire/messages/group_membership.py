"""Being a member of a group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

What a member says of itself and what it is given travel as bytes that only the members understand; those of consumers
are read in wire/consumer_protocol.py.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

from msgspec import Struct

from barnabas.wire.codec import Bool, Bytes, Essential, Int16, Int32, NullableSince, Since, Until


class JoinGroupRequestProtocol(NamedTuple):
    name: str
    metadata: Bytes


class JoinGroupRequest(Struct, frozen=True, kw_only=True):
    """Version 0 has no `rebalance_timeout_ms`: the session timeout counts for both. From version 4 on a member that
    comes without an id is given one and joins again with it."""

    API_KEY: ClassVar[int] = 11
    VERSIONS: ClassVar[range] = range(10)
    FLEXIBLE_SINCE: ClassVar[int] = 6

    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Annotated[Int32, Since(1)] = -1
    member_id: str = ""
    group_instance_id: Annotated[str | None, Since(5), Essential] = None
    protocol_type: str
    protocols: tuple[JoinGroupRequestProtocol, ...]
    reason: Annotated[str | None, Since(8)] = None


class JoinGroupResponseMember(NamedTuple):
    member_id: str
    group_instance_id: Annotated[str | None, Since(5)] = None
    metadata: Bytes = b""


class JoinGroupResponse(Struct, frozen=True, kw_only=True):
    """The members are told to the leader alone. Before version 7 a protocol that is not known is an empty name."""

    API_KEY: ClassVar[int] = 11
    VERSIONS: ClassVar[range] = range(10)
    FLEXIBLE_SINCE: ClassVar[int] = 6

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[str | None, Since(7)] = None
    protocol_name: Annotated[str | None, NullableSince(7)] = ""
    leader: str = ""
    skip_assignment: Annotated[Bool, Since(9), Essential] = False
    member_id: str = ""
    members: tuple[JoinGroupResponseMember, ...] = ()


class SyncGroupRequestAssignment(NamedTuple):
    member_id: str
    assignment: Bytes


class SyncGroupRequest(Struct, frozen=True, kw_only=True):
    """The leader brings everyone's assignment, the others bring none."""

    API_KEY: ClassVar[int] = 14
    VERSIONS: ClassVar[range] = range(6)
    FLEXIBLE_SINCE: ClassVar[int] = 4

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, Since(3), Essential] = None
    protocol_type: Annotated[str | None, Since(5)] = None
    protocol_name: Annotated[str | None, Since(5)] = None
    assignments: tuple[SyncGroupRequestAssignment, ...] = ()


class SyncGroupResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 14
    VERSIONS: ClassVar[range] = range(6)
    FLEXIBLE_SINCE: ClassVar[int] = 4

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[str | None, Since(5)] = None
    protocol_name: Annotated[str | None, Since(5)] = None
    assignment: Bytes = b""


class HeartbeatRequest(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 12
    VERSIONS: ClassVar[range] = range(5)
    FLEXIBLE_SINCE: ClassVar[int] = 4

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, Since(3), Essential] = None


class HeartbeatResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 12
    VERSIONS: ClassVar[range] = range(5)
    FLEXIBLE_SINCE: ClassVar[int] = 4

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0


class MemberIdentity(NamedTuple):
    member_id: str
    group_instance_id: str | None = None
    reason: Annotated[str | None, Since(5)] = None


class LeaveGroupRequest(Struct, frozen=True, kw_only=True):
    """One member up to version 2, many after it."""

    API_KEY: ClassVar[int] = 13
    VERSIONS: ClassVar[range] = range(6)
    FLEXIBLE_SINCE: ClassVar[int] = 4

    group_id: str
    member_id: Annotated[str, Until(2), Essential] = ""
    members: Annotated[tuple[MemberIdentity, ...], Since(3), Essential] = ()


class MemberResponse(NamedTuple):
    member_id: str
    group_instance_id: str | None = None
    error_code: Int16 = 0


class LeaveGroupResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 13
    VERSIONS: ClassVar[range] = range(6)
    FLEXIBLE_SINCE: ClassVar[int] = 4

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[tuple[MemberResponse, ...], Since(3), Essential] = ()
