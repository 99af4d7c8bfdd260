"""ListGroups: the consumer groups that a broker coordinates."""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

from msgspec import Struct

from barnabas.wire.apis import ApiKey
from barnabas.wire.codec import Essential, Int16, Int32, Since


class ListGroupsRequest(Struct, frozen=True, kw_only=True):
    """An empty filter matches every group."""

    API_KEY: ClassVar[int] = ApiKey.LIST_GROUPS
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
    API_KEY: ClassVar[int] = ApiKey.LIST_GROUPS
    VERSIONS: ClassVar[range] = range(6)
    FLEXIBLE_SINCE: ClassVar[int] = 3

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    groups: tuple[ListedGroup, ...] = ()
