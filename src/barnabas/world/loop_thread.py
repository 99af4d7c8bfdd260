"""An event loop on a thread of its own, for as long as the thing that lives on it.

It can be halted between two callbacks and let go on later, as SIGSTOP and SIGCONT do with a process: meanwhile nothing
on it runs, no socket is read, no timer fires. What came in waits, with the kernel or in the loop's queue. Timers that
became due fire afterwards, all at once.

All methods may be called from any other thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs from its construction until `end()`."""

    def __init__(self, name: str) -> None:
        self.loop: asyncio.AbstractEventLoop
        self.main: asyncio.Task[None] | None
        self.ending: asyncio.Event
        self.gate: threading.Event | None = None
        self.first: Callable[[], object] | None = None
        started: Future[None] = Future()

        async def live() -> None:
            self.loop = asyncio.get_running_loop()
            self.main = asyncio.current_task()
            self.ending = asyncio.Event()
            started.set_result(None)
            await self.ending.wait()

        # A daemon, for a program that forgets to end it must end all the same.
        self.thread = threading.Thread(target=lambda: asyncio.run(live()), name=name, daemon=True)
        self.thread.start()
        started.result()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.submit(work).result()

    def call(self, work: Callable[[], T]) -> T:
        """Run a plain function there, and wait for what it returns."""

        async def call() -> T:
            return work()

        return self.run(call())

    # ---- halting

    @property
    def is_halted(self) -> bool:
        return self.gate is not None

    def halt(self) -> None:
        """Returns when nothing runs any more."""
        if self.gate is not None:
            return
        self.gate = gate = threading.Event()
        standing = threading.Event()

        def stand_still() -> None:
            standing.set()
            gate.wait()
            first, self.first = self.first, None
            if first is not None:
                first()

        self.loop.call_soon_threadsafe(stand_still)
        standing.wait()

    def go_on(self, first: Callable[[], object] | None = None) -> None:
        """`first` runs before anything that has been waiting."""
        gate, self.gate = self.gate, None
        if gate is not None:
            self.first = first
            gate.set()

    # ---- ending

    def cancel_all(self) -> None:
        """End all that runs there, wherever it stands, and wait until it has ended."""

        async def cancel_all() -> None:
            kept = (self.main, asyncio.current_task())
            others = [task for task in asyncio.all_tasks() if task not in kept]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.run(cancel_all())

    def end(self) -> None:
        """What still runs there is cancelled."""
        self.go_on()
        self.loop.call_soon_threadsafe(self.ending.set)
        self.thread.join()
