"""Throttle times in responses that are built already."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from msgspec.structs import replace

from barnabas.wire.apis import ApiKey
from barnabas.wire.headers import RequestHeader

THROTTLE_TIME: Final = Struct(">i")
METADATA_SINCE: Final = 3
"""Since this version, a Metadata response starts with its throttle time."""


def set_throttle_time(header: RequestHeader, response: Any, throttle_ms: int) -> Any:
    """Return the response with this throttle time, or its own if that is longer. Not every response has the field."""
    if isinstance(response, bytes):
        if header.api_key != ApiKey.METADATA or header.api_version < METADATA_SINCE:
            return response
        return THROTTLE_TIME.pack(throttle_ms) + response[THROTTLE_TIME.size :]
    own_ms = getattr(response, "throttle_time_ms", None)
    if own_ms is None or own_ms >= throttle_ms:
        return response
    return replace(response, throttle_time_ms=throttle_ms)
