"""Requests that the controller handles one at a time, in the order of its event queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from barnabas.controller.events import Event
from barnabas.controller.queue import EventQueue

A = TypeVar("A")


async def wait_for_controller(
    queue: EventQueue, create_event: Callable[[Callable[[A], None]], Event]
) -> A:
    """Put an event into the controller's queue, wait for its result and return it.

    `create_event` creates the event from its result callback. Only the first call of the callback counts.
    """
    future: asyncio.Future[A] = asyncio.get_running_loop().create_future()

    def set_result(result: A) -> None:
        if not future.done():
            future.set_result(result)

    queue.put(create_event(set_result))
    return await future
