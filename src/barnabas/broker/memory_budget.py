"""Memory of all client connections together."""

from __future__ import annotations

import asyncio
from typing import Protocol

from barnabas.world.ports import Part

RECLAIM_SECONDS = 0.05  # between two searches for memory to reclaim
WORK_SECONDS_MAX = 0.005  # time for the frames of one connection before others are served
PENDING_RESPONSES_MAX = 10_000  # some kilobytes each; beyond it, one per connection
UNSENT_BYTES_MAX = 64 << 20  # of responses that clients have not read, on all connections


class MemoryHolder(Protocol):
    """A connection, as far as the budget uses it."""

    def close(self, why: str) -> None: ...

    def close_after_sending(self, responses: list[Part], why: str) -> None: ...

    def shrink_when_idle(self) -> None: ...

    def is_too_slow(self, now: float) -> bool:
        """Whether it holds reserved memory without progress."""
        ...

    def use_granted_memory(self, size: int) -> None: ...


class MemoryBudget:
    """Bounds on the memory of all connections together: large request buffers, and responses not yet read.

    The rest of a frame that does not fit stays unread until other frames are done. A connection reserves the memory of
    its whole frame or none, so that two half-received frames never wait for each other. If too many bytes of responses
    are unsent, the connection whose client has not read for the longest time is closed.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.holders: dict[MemoryHolder, None] = {}  # connections with reserved memory
        self.waiting: dict[MemoryHolder, int] = {}
        """Requested bytes by connection. The connection that has waited longest comes first."""
        self.pending_responses = 0
        """Number of pending responses on all connections."""
        self.pending_responses_max = PENDING_RESPONSES_MAX
        self.reclaim_timer: asyncio.TimerHandle | None = None
        self.shrunk_at = -RECLAIM_SECONDS
        self.unsent: dict[MemoryHolder, int] = {}
        """Unsent bytes by connection. The connection that has waited longest comes first."""
        self.unsent_bytes = 0

    def add_unsent(self, connection: MemoryHolder, size_bytes: int) -> None:
        self.unsent[connection] = self.unsent.get(connection, 0) + size_bytes
        self.unsent_bytes += size_bytes
        while self.unsent_bytes > UNSENT_BYTES_MAX and len(self.unsent) > 1:
            slowest = next(iter(self.unsent))
            self.remove_unsent(slowest)
            slowest.close("the client does not read its responses")

    def remove_unsent(self, connection: MemoryHolder) -> None:
        self.unsent_bytes -= self.unsent.pop(connection, 0)

    def take(self, size_bytes: int, connection: MemoryHolder, *, may_wait: bool = True) -> bool:
        """Reserve memory and return True. Otherwise return False, and grant it later if the connection may wait."""
        if connection in self.waiting:
            return False
        if may_wait and not self.fits(size_bytes):
            self.shrink_idle_holders()
        if self.waiting or not self.fits(size_bytes):
            if may_wait:
                self.waiting[connection] = size_bytes
                self.schedule_reclaim()
            return False
        self.used_bytes += size_bytes
        self.holders[connection] = None
        return True

    def schedule_reclaim(self) -> None:
        if self.reclaim_timer is None:
            loop = asyncio.get_running_loop()
            self.reclaim_timer = loop.call_later(RECLAIM_SECONDS, self.close_slow_holders)

    def shrink_idle_holders(self) -> None:
        """Release the buffers of idle connections. Rate-limited: thousands of connections may call this at once."""
        now = asyncio.get_running_loop().time()
        if now >= self.shrunk_at + RECLAIM_SECONDS:
            self.shrunk_at = now
            for holder in list(self.holders):
                holder.shrink_when_idle()

    def close_slow_holders(self) -> None:
        """While others wait for memory, close connections that hold memory without progress. Runs in short turns."""
        self.reclaim_timer = None
        self.shrink_idle_holders()
        loop = asyncio.get_running_loop()
        now = loop.time()
        for holder in list(self.holders):
            if self.waiting and holder.is_too_slow(now):
                holder.close_after_sending(
                    [],
                    "no progress while other requests wait for memory (queued.max.request.bytes)",
                )
            if loop.time() > now + WORK_SECONDS_MAX:
                self.reclaim_timer = loop.call_later(0, self.close_slow_holders)
                return
        if self.waiting:
            self.schedule_reclaim()

    def fits(self, size_bytes: int) -> bool:
        return not self.used_bytes or self.used_bytes + size_bytes <= self.limit_bytes

    def release(self, size_bytes: int, connection: MemoryHolder) -> None:
        self.used_bytes -= size_bytes
        del self.holders[connection]
        while self.waiting:
            waiter, wanted = next(iter(self.waiting.items()))
            if not self.fits(wanted):
                break
            del self.waiting[waiter]
            self.used_bytes += wanted
            self.holders[waiter] = None
            waiter.use_granted_memory(wanted)
