"""Heartbeat: keeps a member in its group. The response reports a rebalance."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Struct

from barnabas.wire.apis import ApiKey
from barnabas.wire.codec import Essential, Int16, Int32, Since


class HeartbeatRequest(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = ApiKey.HEARTBEAT
    VERSIONS: ClassVar[range] = range(5)
    FLEXIBLE_SINCE: ClassVar[int] = 4

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, Since(3), Essential] = None


class HeartbeatResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = ApiKey.HEARTBEAT
    VERSIONS: ClassVar[range] = range(5)
    FLEXIBLE_SINCE: ClassVar[int] = 4

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
