"""Start tasks together, stop them together, always in the order they were started.

`asyncio.TaskGroup` and `asyncio.wait` walk a set of tasks in memory-address order, so two identical runs may differ.
A simulation must not: this keeps a list.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger("barnabas.tasks")


class Tasks:
    """Background work of one owner. A task that fails is logged; the others go on."""

    def __init__(self) -> None:
        self.running: list[asyncio.Task[Any]] = []

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.running.append(task)
        task.add_done_callback(self.finished)

    def finished(self, task: asyncio.Task[Any]) -> None:
        if task in self.running:
            self.running.remove(task)
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
