"""Event queue of the controller. It handles one event at a time, so the context has one writer.

The queue is first in, first out. An event that equals a waiting one is dropped, because handlers read the current
state. `clear_and_put` drops all waiting events, for a controller that lost its session. Dropped events with an `answer`
are answered with NOT_CONTROLLER.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from barnabas.controller.events import (
    ClientRequest,
    Event,
    RequestAnswered,
)
from barnabas.errors import ApiError, ErrorCode
from barnabas.metrics.histogram import Buckets, add_seconds, new_buckets

logger = logging.getLogger("barnabas.controller")

EventHandler = Callable[[Event, str], Awaitable[None]]
NEVER_DEDUPLICATED = ClientRequest | RequestAnswered


class QueuedEvent(NamedTuple):
    """A waiting event."""

    event: Event
    cause: str
    """Name of the event in the history, such as TopicsChanged#41."""
    started: asyncio.Future[None]
    queued_at: float
    """Loop time."""


class EventQueue:
    """Queue and its single consumer, `run`."""

    def __init__(self, handle: EventHandler) -> None:
        self.handle = handle
        self.waiting: deque[QueuedEvent] = deque()
        self.wakeup = asyncio.Event()
        self.count = 0
        self.is_busy = False
        self.queue_times = new_buckets()
        self.handling_times: dict[str, Buckets] = {}
        """Durations by the name of the event's class."""

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.is_busy

    def put(self, event: Event) -> asyncio.Future[None]:
        """Add an event. The future is done when its handling starts, or when the event is dropped."""
        if not isinstance(event, NEVER_DEDUPLICATED):
            for queued in self.waiting:
                if queued.event == event:
                    return queued.started
        self.count += 1
        cause = f"{type(event).__name__}#{self.count}"
        loop = asyncio.get_running_loop()
        queued = QueuedEvent(event, cause, loop.create_future(), loop.time())
        self.waiting.append(queued)
        self.wakeup.set()
        return queued.started

    def clear_and_put(self, event: Event) -> asyncio.Future[None]:
        """Drop all waiting events, then add this one."""
        dropped = list(self.waiting)
        self.waiting.clear()
        for queued in dropped:
            preempt(queued.event)
            queued.started.set_result(None)
        return self.put(event)

    async def run(self) -> None:
        while True:
            while not self.waiting:
                self.wakeup.clear()
                await self.wakeup.wait()
            event, cause, started, queued_at = self.waiting.popleft()
            began = asyncio.get_running_loop().time()
            add_seconds(self.queue_times, began - queued_at)
            if not started.done():
                started.set_result(None)
            self.is_busy = True
            try:
                await self.handle(event, cause)
            except Exception:
                logger.exception("event handler failed cause=%s", cause)
                preempt(event)
            finally:
                self.is_busy = False
                self.count_handled(event, asyncio.get_running_loop().time() - began)

    def count_handled(self, event: Event, seconds: float) -> None:
        times = self.handling_times.get(type(event).__name__)
        if times is None:
            times = self.handling_times[type(event).__name__] = new_buckets()
        add_seconds(times, seconds)


def preempt(event: Event) -> None:
    """Answer an event that is not handled, or not completely, with NOT_CONTROLLER. A second answer is ignored."""
    if isinstance(event, ClientRequest):
        event.answer(ApiError(ErrorCode.NOT_CONTROLLER))
