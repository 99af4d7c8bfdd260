"""Wait for a condition until a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_S = 0.01


def eventually(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Wait until `condition()` is true. After `seconds`, raises AssertionError with `what`, the condition in words."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(POLL_S)
