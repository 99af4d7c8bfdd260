"""DeleteGroups: deletes empty consumer groups with their committed offsets."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from msgspec import Struct

from barnabas.wire.apis import ApiKey
from barnabas.wire.codec import Int16, Int32


class DeleteGroupsRequest(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = ApiKey.DELETE_GROUPS
    VERSIONS: ClassVar[range] = range(3)
    FLEXIBLE_SINCE: ClassVar[int] = 2

    groups_names: tuple[str, ...]


class DeletableGroupResult(NamedTuple):
    group_id: str
    error_code: Int16 = 0


class DeleteGroupsResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = ApiKey.DELETE_GROUPS
    VERSIONS: ClassVar[range] = range(3)
    FLEXIBLE_SINCE: ClassVar[int] = 2

    throttle_time_ms: Int32 = 0
    results: tuple[DeletableGroupResult, ...] = ()
