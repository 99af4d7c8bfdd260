"""DeleteGroups: deletes empty consumer groups with their committed offsets."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Int16, Int32


class DeleteGroupsRequest(ApiMessage, frozen=True, kw_only=True):
    groups_names: tuple[str, ...]


class DeletableGroupResult(NamedTuple):
    group_id: str
    error_code: Int16 = 0


class DeleteGroupsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    results: tuple[DeletableGroupResult, ...] = ()
