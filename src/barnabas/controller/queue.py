"""One event at a time: the only place where a controller's context is touched from.

The queue is first in, first out. An event that says the same as one already waiting is dropped: its handler reads what
is, not what was. `clear_and_put` throws out everything that waits, for who has just lost the ground to act on it;
those who wait for an answer are told NOT_CONTROLLER.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from barnabas.controller.events import (
    AlterPartitionReceived,
    ControlledShutdownReceived,
    ElectLeadersReceived,
    Event,
    RequestAnswered,
)
from barnabas.errors import ApiError, ErrorCode

logger = logging.getLogger("barnabas.controller")

Handle = Callable[[Event, str], Awaitable[None]]
SOMEBODY_WAITS = (AlterPartitionReceived, ControlledShutdownReceived, ElectLeadersReceived)
ALWAYS_NEW = (*SOMEBODY_WAITS, RequestAnswered)


class Queued(NamedTuple):
    event: Event
    cause: str
    """By which the history names it: TopicsChanged#41."""
    began: asyncio.Future[None]


class EventQueue:
    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.waiting: deque[Queued] = deque()
        self.woken = asyncio.Event()
        self.count = 0
        self.is_busy = False

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.is_busy

    def put(self, event: Event) -> asyncio.Future[None]:
        """The future is done when the handling of the event begins."""
        if not isinstance(event, ALWAYS_NEW):
            for queued in self.waiting:
                if queued.event == event:
                    return queued.began
        self.count += 1
        cause = f"{type(event).__name__}#{self.count}"
        queued = Queued(event, cause, asyncio.get_running_loop().create_future())
        self.waiting.append(queued)
        self.woken.set()
        return queued.began

    def clear_and_put(self, event: Event) -> asyncio.Future[None]:
        dropped = list(self.waiting)
        self.waiting.clear()
        for queued in dropped:
            preempt(queued.event)
            queued.began.set_result(None)
        return self.put(event)

    async def run(self) -> None:
        while True:
            while not self.waiting:
                self.woken.clear()
                await self.woken.wait()
            event, cause, began = self.waiting.popleft()
            if not began.done():
                began.set_result(None)
            self.is_busy = True
            try:
                await self.handle(event, cause)
            except Exception:
                logger.exception("event failed cause=%s", cause)
                preempt(event)
            finally:
                self.is_busy = False


def preempt(event: Event) -> None:
    """It is not handled, or not to its end; who waits must not wait for ever. A second answer goes nowhere."""
    if isinstance(event, SOMEBODY_WAITS):
        event.answer(ApiError(ErrorCode.NOT_CONTROLLER))
