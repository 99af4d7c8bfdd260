"""Time that the event loop works for the requests of one connection, for the quota request_percentage.

Only the steps of a request count: not the time in which it waits for replicas, records, the registry or other requests.
A connection has a meter only while its client has such a quota.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class WorkMeter:
    """Adds up the seconds between `resume` and `pause`. `now` returns a monotonic time in seconds."""

    __slots__ = ("is_running", "now", "resumed_at", "seconds")

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.seconds = 0.0
        self.resumed_at = 0.0
        self.is_running = False

    def resume(self) -> None:
        self.resumed_at = self.now()
        self.is_running = True

    def pause(self) -> None:
        self.seconds += self.now() - self.resumed_at
        self.is_running = False

    def take(self) -> float:
        """Return the seconds since the last call. Work after it counts for the next request."""
        if self.is_running:
            self.pause()
            self.resume()
        seconds, self.seconds = self.seconds, 0.0
        return seconds


class MeteredWork(Coroutine[Any, Any, T]):
    """A coroutine whose steps are measured. To be run in a task."""

    def __init__(self, work: Coroutine[Any, Any, T], meter: WorkMeter) -> None:
        self.work = work
        self.meter = meter

    def send(self, value: Any) -> Any:
        self.meter.resume()
        try:
            return self.work.send(value)
        finally:
            self.meter.pause()

    def throw(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
    ) -> Any:
        self.meter.resume()
        try:
            return self.work.throw(val if isinstance(val, BaseException) else typ)
        finally:
            self.meter.pause()

    def close(self) -> None:
        self.work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self.work.__await__()
