"""Rate limiter for log messages."""

from __future__ import annotations


class LogRateLimiter:
    """`due(now)` returns True at the first call, and then once per interval."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.last_s: float | None = None

    def due(self, now_s: float) -> bool:
        if self.last_s is not None and now_s - self.last_s < self.interval_s:
            return False
        self.last_s = now_s
        return True
