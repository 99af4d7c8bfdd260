"""What would be said again and again, said once in a while."""

from __future__ import annotations


class Seldom:
    """`due(now)` is true at first, and then not again until the interval has passed."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.last_s: float | None = None

    def due(self, now_s: float) -> bool:
        if self.last_s is not None and now_s - self.last_s < self.interval_s:
            return False
        self.last_s = now_s
        return True
