"""How fast throttled replicas are copied: bytes a second, over the last few windows of time.

    quota 100 bytes/s     0 s: 300 bytes     1 s: 300 bytes/s     2 s: 150     3 s: 100, and more may be copied

A replica that catches up takes what disks and network can give, from clients as well. So an operator lists replicas in
a topic's settings and gives each broker two rates: leaders send no more than the one to those listed for them, and
followers ask for no more than the other. Only who is out of sync is held back: who is in sync would fall out of it.
Nothing is ever cut short: what went at once counts until it is within the rate.

The first window counts as a whole one, or the first bytes of all would be an endless rate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

UNLIMITED = (1 << 63) - 1
ALL_REPLICAS = ("*",)


class Window:
    __slots__ = ("last_ms", "size", "start_ms")

    def __init__(self, now_ms: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.size = 0


class ReplicationQuota:
    """What went, and whether that was too much. Any time in it comes from `now_ms`."""

    def __init__(
        self,
        bytes_per_second: int,
        now_ms: Callable[[], float],
        *,
        windows: int = 11,
        window_ms: float = 1000.0,
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self.now_ms = now_ms
        self.window_ms = window_ms
        self.remembered_ms = windows * window_ms
        self.windows: deque[Window] = deque()

    def record(self, size: int) -> None:
        """It has gone, be it too much or not."""
        now = self.now_ms()
        self.forget_old(now)
        if not self.windows or now - self.windows[-1].start_ms >= self.window_ms:
            self.windows.append(Window(now))
        window = self.windows[-1]
        window.size += size
        window.last_ms = now

    def is_exceeded(self) -> bool:
        return self.wait_ms() > 0

    def wait_ms(self) -> float:
        """How long nothing more may go; 0 if something may now."""
        now = self.now_ms()
        self.forget_old(now)
        if not self.windows:
            return 0.0
        size = sum(window.size for window in self.windows)
        elapsed_ms = max(now - self.windows[0].start_ms, self.window_ms)
        if size * 1000.0 <= self.bytes_per_second * elapsed_ms:
            return 0.0
        forgotten_ms = self.windows[0].last_ms + self.remembered_ms - now
        if self.bytes_per_second == 0:
            return forgotten_ms
        return min(size * 1000.0 / self.bytes_per_second - elapsed_ms, forgotten_ms)

    def forget_old(self, now_ms: float) -> None:
        while self.windows and now_ms - self.windows[0].last_ms >= self.remembered_ms:
            self.windows.popleft()


def quota_of(
    bytes_per_second: int, now_ms: Callable[[], float], *, windows: int, window_s: int
) -> ReplicationQuota | None:
    """None where there is no limit: then nothing is counted."""
    if bytes_per_second >= UNLIMITED:
        return None
    return ReplicationQuota(bytes_per_second, now_ms, windows=windows, window_ms=window_s * 1000.0)


def is_throttled(replicas: tuple[str, ...], partition: int, broker: int) -> bool:
    """Whether a topic's list of throttled replicas names this one: `*`, or `partition:broker` among others."""
    if not replicas:
        return False
    return replicas == ALL_REPLICAS or any(
        tuple(map(int, each.split(":"))) == (partition, broker) for each in replicas if each
    )
