"""Calls of foreign code, each in its own daemon thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class DaemonThreadCaller:
    """Implements `ThreadCaller`.

    The threads of asyncio's executor are joined when the process ends. A call that never returns would keep a stopped
    broker from ending. Daemon threads are not joined.
    """

    def start(self, call: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def deliver(result: T) -> None:
            if not future.done():
                future.set_result(result)

        def run() -> None:
            result = call()
            with suppress(RuntimeError):  # the loop is closed: the broker has stopped meanwhile
                loop.call_soon_threadsafe(deliver, result)

        threading.Thread(target=run, name="foreign-call", daemon=True).start()
        return future
