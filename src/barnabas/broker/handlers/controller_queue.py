"""Requests that the controller handles one at a time, in the order of its event queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from barnabas.controller.events import Event
from barnabas.controller.queue import EventQueue

A = TypeVar("A")


async def ask_controller(
    queue: EventQueue, event_with: Callable[[Callable[[A], None]], Event]
) -> A:
    """Put an event into the queue and return its answer. Only the first answer counts.

    `event_with` creates the event from the callback for its answer.
    """
    future: asyncio.Future[A] = asyncio.get_running_loop().create_future()

    def answer(result: A) -> None:
        if not future.done():
            future.set_result(result)

    queue.put(event_with(answer))
    return await future
