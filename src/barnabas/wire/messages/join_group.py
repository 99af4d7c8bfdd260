"""JoinGroup: a member joins its group, or rejoins it in a rebalance.

The metadata of members and, in SyncGroup, their assignments are bytes that only members interpret. The format that
consumers use is in wire/consumer_protocol.py.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Bytes, Essential, Int16, Int32, NullableSince, Since


class JoinGroupRequestProtocol(NamedTuple):
    name: str
    metadata: Bytes


class JoinGroupRequest(ApiMessage, frozen=True, kw_only=True):
    """In version 0 the session timeout is the rebalance timeout as well.

    From version 4 on, a member without an id gets one in the response and joins again with it.
    """

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


class JoinGroupResponse(ApiMessage, frozen=True, kw_only=True):
    """Only the leader gets the members. `protocol_name` is null without a protocol; before version 7 it is empty."""

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[str | None, Since(7)] = None
    protocol_name: Annotated[str | None, NullableSince(7)] = ""
    leader: str = ""
    skip_assignment: Annotated[Bool, Since(9), Essential] = False
    member_id: str = ""
    members: tuple[JoinGroupResponseMember, ...] = ()
