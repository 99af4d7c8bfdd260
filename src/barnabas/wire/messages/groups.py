"""Looking at groups from outside, and deleting them: DescribeGroups, ListGroups, DeleteGroups."""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

from msgspec import Struct

from barnabas.wire.codec import Bool, Bytes, Essential, Int16, Int32, Since
from barnabas.wire.messages.metadata import NO_OPERATIONS

GROUP_OPERATIONS = 0b1_0100_1000
"""Everything that can be done to a group, a bit for each: nothing is forbidden here."""


class DescribeGroupsRequest(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 15
    VERSIONS: ClassVar[range] = range(6)
    FLEXIBLE_SINCE: ClassVar[int] = 5

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
    """The name of the chosen protocol, where the group is Stable."""
    members: tuple[DescribedGroupMember, ...] = ()
    authorized_operations: Annotated[Int32, Since(3)] = NO_OPERATIONS


class DescribeGroupsResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 15
    VERSIONS: ClassVar[range] = range(6)
    FLEXIBLE_SINCE: ClassVar[int] = 5

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    groups: tuple[DescribedGroup, ...] = ()


class ListGroupsRequest(Struct, frozen=True, kw_only=True):
    """Filters that are empty let everything through."""

    API_KEY: ClassVar[int] = 16
    VERSIONS: ClassVar[range] = range(6)
    FLEXIBLE_SINCE: ClassVar[int] = 3

    states_filter: Annotated[tuple[str, ...], Since(4), Essential] = ()
    types_filter: Annotated[tuple[str, ...], Since(5), Essential] = ()


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    group_state: Annotated[str, Since(4)] = ""
    group_type: Annotated[str, Since(5)] = ""


class ListGroupsResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 16
    VERSIONS: ClassVar[range] = range(6)
    FLEXIBLE_SINCE: ClassVar[int] = 3

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    groups: tuple[ListedGroup, ...] = ()


class DeleteGroupsRequest(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 42
    VERSIONS: ClassVar[range] = range(3)
    FLEXIBLE_SINCE: ClassVar[int] = 2

    groups_names: tuple[str, ...]


class DeletableGroupResult(NamedTuple):
    group_id: str
    error_code: Int16 = 0


class DeleteGroupsResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 42
    VERSIONS: ClassVar[range] = range(3)
    FLEXIBLE_SINCE: ClassVar[int] = 2

    throttle_time_ms: Int32 = 0
    results: tuple[DeletableGroupResult, ...] = ()
