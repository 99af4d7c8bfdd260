"""Rate of a client over the last time windows, as Kafka measures it for quotas.

    10 per second, 11 windows of 1 s     the first 100 or so are free: a rate counts over at least 10 s
    200 at 0 s                           rate 200 / 10 s = 20; the client waits (20 - 10) / 10 * 10 s = 10 s

Nothing is rejected: an amount may exceed the rate, and then the client waits until its rate is met.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

WAIT_MS_MAX = 2**31 - 1
"""Longest throttle time that a response can contain: 25 days."""


class Window:
    """The amount of one time window. Times in ms."""

    __slots__ = ("amount", "last_ms", "start_ms")

    def __init__(self, now_ms: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.amount = 0.0


class SampledRate:
    """Counts amounts and compares them with `limit` per second. `now_ms` returns a monotonic time."""

    __slots__ = ("limit", "now_ms", "window_ms", "windows", "windows_max")

    def __init__(
        self, limit: float, now_ms: Callable[[], float], *, windows: int, window_ms: float
    ) -> None:
        self.limit = limit
        self.now_ms = now_ms
        self.windows_max = windows
        self.window_ms = window_ms
        self.windows: deque[Window] = deque()

    def record(self, amount: float) -> None:
        """Count an amount, even if it exceeds the limit. A negative amount takes back an earlier one."""
        now = self.now_ms()
        self.drop_old_windows(now)
        if not self.windows or now - self.windows[-1].start_ms >= self.window_ms:
            self.windows.append(Window(now))
        window = self.windows[-1]
        window.amount += amount
        window.last_ms = now

    def wait_ms(self, more: float = 0.0) -> int:
        """Return the time until the rate is met if only `more` is recorded now; 0 if it is met at once.

        With a limit of 0, this is the time of all windows.
        """
        amount = self.amount() + more
        now = self.now_ms()
        elapsed_ms = self.measured_ms(now)
        if amount * 1000.0 <= self.limit * elapsed_ms:
            return 0
        if self.limit == 0:
            return math.ceil(self.windows_max * self.window_ms)
        wait_ms = amount * 1000.0 / self.limit - elapsed_ms
        return math.ceil(min(wait_ms, WAIT_MS_MAX))

    def amount(self) -> float:
        """Return what was recorded in the measured time."""
        self.drop_old_windows(self.now_ms())
        return sum(window.amount for window in self.windows)

    def measured_ms(self, now_ms: float) -> float:
        """Return the time over which the rate is measured: at least all windows but one."""
        elapsed_ms = now_ms - self.windows[0].start_ms if self.windows else 0.0
        missing = self.windows_max - 1 - int(elapsed_ms / self.window_ms)
        return max(elapsed_ms + max(missing, 0) * self.window_ms, 1.0)

    def drop_old_windows(self, now_ms: float) -> None:
        """Drop the windows without an amount in the measured time. One that overlaps its start is kept."""
        retained_ms = self.windows_max * self.window_ms
        while self.windows and now_ms - self.windows[0].last_ms >= retained_ms:
            self.windows.popleft()

    def is_idle(self) -> bool:
        """Whether nothing was recorded in the measured time. Then it is the same as a new one."""
        self.drop_old_windows(self.now_ms())
        return not self.windows
