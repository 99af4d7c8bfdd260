"""DescribeGroups: the state and the members of consumer groups."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Bytes, Essential, Int16, Int32, Since
from barnabas.wire.messages.metadata import NO_OPERATIONS

GROUP_OPERATIONS = 0b1_0100_1000
"""Bit set of all operations on a group. All are authorized."""


class DescribeGroupsRequest(ApiMessage, frozen=True, kw_only=True):
    groups: tuple[str, ...]
    include_authorized_operations: Annotated[Bool, Since(3), Essential] = False


class DescribedGroupMember(NamedTuple):
    """The metadata and the assignment are empty unless the group is Stable."""

    member_id: str
    group_instance_id: Annotated[str | None, Since(4)] = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(NamedTuple):
    error_code: Int16
    group_id: str
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    """The name of the chosen protocol, if the group is Stable."""
    members: tuple[DescribedGroupMember, ...] = ()
    authorized_operations: Annotated[Int32, Since(3)] = NO_OPERATIONS


class DescribeGroupsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    groups: tuple[DescribedGroup, ...] = ()
