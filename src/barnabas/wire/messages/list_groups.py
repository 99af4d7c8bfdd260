"""ListGroups: the consumer groups that a broker coordinates."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Essential, Int16, Int32, Since


class ListGroupsRequest(ApiMessage, frozen=True, kw_only=True):
    """An empty filter matches every group."""

    states_filter: Annotated[tuple[str, ...], Since(4), Essential] = ()
    types_filter: Annotated[tuple[str, ...], Since(5), Essential] = ()


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    group_state: Annotated[str, Since(4)] = ""
    group_type: Annotated[str, Since(5)] = ""


class ListGroupsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    groups: tuple[ListedGroup, ...] = ()
