"""Background tasks in a fixed order, and helpers that keep the event loop responsive.

`asyncio.TaskGroup` and `asyncio.wait` visit a set of tasks in memory-address order, so two identical runs may differ.
`Tasks` keeps the order in which tasks were started, so that a simulation is repeatable.

One event loop serves all clients, so no task may hold it for long. A loop over many items yields to other tasks with
`Turns`, `in_chunks` or `run_overlapping`. A computation that cannot be split runs in a thread: `in_thread_if_large`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

logger = logging.getLogger("barnabas.tasks")

CHUNKS_IN_FLIGHT = 3
ITEMS_PER_TURN = 64
TURN_SECONDS_MAX = 0.005
SMALL_MAX = 1000
"""Maximum items of a small computation. Encoding or merging this many partitions takes a few milliseconds."""


class Tasks:
    """Background tasks of one component. If a task fails, the error is logged and the others continue."""

    def __init__(self) -> None:
        self.running: dict[asyncio.Task[Any], None] = {}  # in the order of their start

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.running[task] = None
        task.add_done_callback(self.on_finished)

    def on_finished(self, task: asyncio.Task[Any]) -> None:
        self.running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("task failed name=%s", task.get_name(), exc_info=error)

    async def stop(self) -> None:
        """Cancel all tasks, oldest first, and wait for each. Cancellation propagates after all have finished."""
        interruption: asyncio.CancelledError | None = None
        for task in list(self.running):
            task.cancel()
            while not task.done():
                try:
                    await asyncio.gather(task, return_exceptions=True)
                except asyncio.CancelledError as cancelled:
                    interruption = cancelled
        if interruption is not None:
            raise interruption


class Turns:
    """Cooperative scheduling of a loop over many items.

    Each iteration calls `yield_if_due`, which yields to other tasks after `items` items or TURN_SECONDS_MAX seconds.
    """

    def __init__(self, items: int = ITEMS_PER_TURN) -> None:
        self.items = items
        self.loop = asyncio.get_running_loop()
        self.began = self.loop.time()
        self.items_done = 0

    async def yield_if_due(self) -> None:
        """Count one item, and yield to other tasks if the turn is over."""
        self.items_done += 1
        is_due = self.items_done > self.items or self.loop.time() - self.began > TURN_SECONDS_MAX
        if is_due:
            await asyncio.sleep(0)
            self.began = self.loop.time()
            self.items_done = 0


async def in_chunks(items: tuple[T, ...], size: int) -> AsyncIterator[tuple[T, ...]]:
    """Iterate over chunks of `size` items. Yields to other tasks between two chunks."""
    for start in range(0, len(items), size):
        if start:
            await asyncio.sleep(0)
        yield items[start : start + size]


async def run_overlapping(
    items: tuple[T, ...], size: int, work: Callable[[tuple[T, ...]], Coroutine[Any, Any, R]]
) -> list[R]:
    """Call `work` for each chunk of `size` items, with up to CHUNKS_IN_FLIGHT chunks in flight.

    Results are in chunk order. If a chunk fails, the others are cancelled. The error is raised when they have finished.
    """
    results: list[R] = []
    running: deque[asyncio.Task[R]] = deque()
    try:
        for start in range(0, len(items), size):
            if len(running) == CHUNKS_IN_FLIGHT:
                results.append(await running[0])
                running.popleft()
            chunk = items[start : start + size]
            running.append(asyncio.get_running_loop().create_task(work(chunk)))
            await asyncio.sleep(0)
        while running:
            results.append(await running[0])
            running.popleft()
    except BaseException:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        raise
    return results


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Call `work` in a thread. A cancellation propagates after the call has returned.

    A thread cannot be stopped, and no other code may use its data before it ends.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.gather(running, return_exceptions=True)
        raise


async def in_thread_if_large(size: int, work: Callable[..., T], *arguments: Any) -> T:
    """Call `work`, in a thread if it handles more than SMALL_MAX items, so that the event loop keeps running.

    No other code may change the arguments before `work` returns. Unlike `in_thread`, a cancellation does not wait for
    the thread. The thread makes the call no faster: it shares the interpreter lock with the event loop.
    """
    if size <= SMALL_MAX:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)
