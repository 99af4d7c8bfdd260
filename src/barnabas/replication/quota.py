"""Rate limit for throttled replicas, in bytes per second over the last few time windows.

    quota 100 bytes/s, 300 bytes sent at 0 s     rate at 1 s: 300 bytes/s     2 s: 150     3 s: 100, more may be sent

A replica that catches up can use all disk and network bandwidth. So an operator lists throttled replicas in the topic
config and sets two rates per broker: for leaders that send to listed followers, and for listed followers that fetch.
In-sync replicas are never throttled: they would leave the ISR. A transfer is never cut: it may exceed the rate, and
then the next transfer waits.

The first window counts with its full length. Otherwise the rate of the first bytes would be infinite.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from barnabas.config import BrokerConfig

UNLIMITED = (1 << 63) - 1
ALL_REPLICAS = ("*",)
PARSED_MAX = 1000
parsed_lists: dict[int, tuple[tuple[str, ...], frozenset[tuple[int, ...]]]] = {}


class Window:
    """Bytes of one time window. Times in ms."""

    __slots__ = ("last_ms", "size", "start_ms")

    def __init__(self, now_ms: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.size = 0


class ReplicationQuota:
    """Counts transferred bytes and compares them with the rate. `now_ms` returns a monotonic time."""

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
        self.retained_ms = windows * window_ms
        self.windows: deque[Window] = deque()

    def record(self, size: int) -> None:
        """Count `size` transferred bytes, even if they exceed the rate."""
        now = self.now_ms()
        self.drop_old_windows(now)
        if not self.windows or now - self.windows[-1].start_ms >= self.window_ms:
            self.windows.append(Window(now))
        window = self.windows[-1]
        window.size += size
        window.last_ms = now

    def is_exceeded(self) -> bool:
        return self.wait_ms() > 0

    def wait_ms(self) -> float:
        """Return the time in ms until the next transfer may start, or 0 if it may start now."""
        now = self.now_ms()
        self.drop_old_windows(now)
        if not self.windows:
            return 0.0
        size = sum(window.size for window in self.windows)
        elapsed_ms = max(now - self.windows[0].start_ms, self.window_ms)
        if size * 1000.0 <= self.bytes_per_second * elapsed_ms:
            return 0.0
        until_dropped_ms = self.windows[0].last_ms + self.retained_ms - now
        if self.bytes_per_second == 0:
            return until_dropped_ms
        return min(size * 1000.0 / self.bytes_per_second - elapsed_ms, until_dropped_ms)

    def drop_old_windows(self, now_ms: float) -> None:
        while self.windows and now_ms - self.windows[0].last_ms >= self.retained_ms:
            self.windows.popleft()


def create_quota(
    bytes_per_second: int, config: BrokerConfig, now_ms: Callable[[], float]
) -> ReplicationQuota | None:
    """Return a quota, or None if the rate is unlimited."""
    if bytes_per_second >= UNLIMITED:
        return None
    return ReplicationQuota(
        bytes_per_second,
        now_ms,
        windows=config.replication_quota_window_num,
        window_ms=config.replication_quota_window_size_seconds * 1000.0,
    )


def update_quota(
    quota: ReplicationQuota | None,
    bytes_per_second: int,
    config: BrokerConfig,
    now_ms: Callable[[], float],
) -> ReplicationQuota | None:
    """Return the quota for a new rate. The bytes that were counted before still count."""
    if quota is None or bytes_per_second >= UNLIMITED:
        return create_quota(bytes_per_second, config, now_ms)
    quota.bytes_per_second = bytes_per_second
    return quota


def is_throttled(replicas: tuple[str, ...], partition: int, broker: int) -> bool:
    """Return whether `replicas`, the topic's list of throttled replicas, is `*` or has `partition:broker`."""
    if not replicas:
        return False
    return replicas == ALL_REPLICAS or (partition, broker) in parse_replicas(replicas)


def parse_replicas(replicas: tuple[str, ...]) -> frozenset[tuple[int, ...]]:
    """Return the pairs (partition, broker) of a list. Parsed once: each fetch checks many partitions of a topic.

    The cache uses the identity of the list, which the partitions of a topic share. Its hash takes too long.
    """
    found = parsed_lists.get(id(replicas))
    if found is None:
        if len(parsed_lists) >= PARSED_MAX:
            parsed_lists.clear()
        pairs = frozenset(tuple(map(int, each.split(":"))) for each in replicas if each)
        # The list is stored too. So no other object gets its id.
        found = parsed_lists[id(replicas)] = (replicas, pairs)
    return found[1]
