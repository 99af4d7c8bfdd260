"""Rate limiter for log messages."""

from __future__ import annotations


class LogRateLimiter:
    """Allows one message per interval."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.last_s: float | None = None

    def is_due(self, now_s: float) -> bool:
        """Whether to log now. If so, the next interval begins."""
        if self.last_s is not None and now_s - self.last_s < self.interval_s:
            return False
        self.last_s = now_s
        return True
