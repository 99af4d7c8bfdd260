"""Sizes of encoded responses."""

from __future__ import annotations

from typing import Final

from barnabas.world.ports import FileSlice, Part

LARGE_RESPONSE_BYTES: Final = 64 * 1024  # sent before the next request is served


def ends_with_large_response(responses: list[Part]) -> bool:
    """Whether the last response must be sent before the next request is served."""
    last = responses[-1] if responses else b""
    return not isinstance(last, FileSlice) and len(last) > LARGE_RESPONSE_BYTES


def size_in_memory(response: list[Part]) -> int:
    """Return the size of the parts in memory. File slices are read only when they are sent."""
    return sum(len(part) for part in response if not isinstance(part, FileSlice))
