"""Start tasks together, stop them together, always in the order they were started; and leave the loop to others.

`asyncio.TaskGroup` and `asyncio.wait` walk a set of tasks in memory-address order, so two identical runs may differ.
A simulation must not: this keeps them in order.

One loop serves everybody, so nobody may hold it for long. Work on many things leaves it in between: `Turns`, or
`in_turns` and `overlapping` for many of a kind. Work on one large value, which cannot be cut, is done in a thread:
`aside`.
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

OVERLAPPING = 3
THINGS_PER_TURN = 64
TURN_SECONDS_MAX = 0.005
SMALL = 1000
"""So many partitions are written, read or merged within a few milliseconds."""


class Tasks:
    """Background work of one owner. A task that fails is logged; the others go on."""

    def __init__(self) -> None:
        self.running: dict[asyncio.Task[Any], None] = {}

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.running[task] = None
        task.add_done_callback(self.finished)

    def finished(self, task: asyncio.Task[Any]) -> None:
        self.running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("task failed name=%s", task.get_name(), exc_info=error)

    async def stop(self) -> None:
        """Cancel all, newest last, and wait for each. Who is cancelled while waiting here is so when all have ended."""
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
    """Leaves turns of the loop to others: a topic of thousands of partitions must not keep everybody waiting, and how
    long the file system takes for one is not ours to say."""

    def __init__(self, things: int = THINGS_PER_TURN) -> None:
        self.things = things
        self.loop = asyncio.get_running_loop()
        self.began = self.loop.time()
        self.done = 0

    async def leave(self) -> None:
        self.done += 1
        is_long = self.done > self.things or self.loop.time() - self.began > TURN_SECONDS_MAX
        if is_long:
            await asyncio.sleep(0)
            self.began = self.loop.time()
            self.done = 0


async def in_turns(things: tuple[T, ...], at_once: int) -> AsyncIterator[tuple[T, ...]]:
    """All of them, so many at a time, with a turn for everybody else in between."""
    for start in range(0, len(things), at_once):
        if start:
            await asyncio.sleep(0)
        yield things[start : start + at_once]


async def overlapping(
    things: tuple[T, ...], at_once: int, work: Callable[[tuple[T, ...]], Coroutine[Any, Any, R]]
) -> list[R]:
    """Work on all of them, so many at a time: while some of them wait, the next begin. Others have turns in between.

    If one part fails the rest is given up, and has ended when the error is raised.
    """
    results: list[R] = []
    running: deque[asyncio.Task[R]] = deque()
    try:
        for start in range(0, len(things), at_once):
            if len(running) == OVERLAPPING:
                results.append(await running[0])
                running.popleft()
            part = things[start : start + at_once]
            running.append(asyncio.get_running_loop().create_task(work(part)))
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
    """For what may wait for the disk. Who is cancelled meanwhile is so when it has ended: it cannot be stopped, and
    what it works on must not be touched before."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.gather(running, return_exceptions=True)
        raise


async def aside(size: int, work: Callable[..., T], *arguments: Any) -> T:
    """What `work` returns: found in a thread if it is about more than a few things, so that the loop goes on.

    Only for work on values that nobody changes meanwhile. It becomes no faster, since threads share Python's lock, but
    that changes hands every few milliseconds.
    """
    if size <= SMALL:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)
