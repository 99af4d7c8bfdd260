"""Heartbeat: keeps a member in its group. An error in the response reports a rebalance."""

from __future__ import annotations

from typing import Annotated

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Essential, Int16, Int32, Since


class HeartbeatRequest(ApiMessage, frozen=True, kw_only=True):
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, Since(3), Essential] = None


class HeartbeatResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
