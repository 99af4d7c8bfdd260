"""An event loop in its own thread.

The loop can be halted between two callbacks and resumed later, like a process with SIGSTOP and SIGCONT. While the loop
is halted, no callback runs, no socket is read and no timer fires. Input waits in the kernel or in the queue of the
loop. Overdue timers fire after the loop is resumed.

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
    """An event loop that runs from construction until `end()`."""

    def __init__(self, name: str) -> None:
        self.loop: asyncio.AbstractEventLoop
        self.main: asyncio.Task[None] | None
        self.ending: asyncio.Event
        self.gate: threading.Event | None = None  # blocks the halted loop until it is set
        self.first: Callable[[], object] | None = None  # called first when the loop resumes
        started: Future[None] = Future()

        async def main() -> None:
            self.loop = asyncio.get_running_loop()
            self.main = asyncio.current_task()
            self.ending = asyncio.Event()
            started.set_result(None)
            await self.ending.wait()

        # A daemon thread, so that a program that does not call `end()` can still exit.
        self.thread = threading.Thread(target=lambda: asyncio.run(main()), name=name, daemon=True)
        self.thread.start()
        started.result()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop and return a future of its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result."""
        return self.submit(work).result()

    def call(self, work: Callable[[], T]) -> T:
        """Call a function on the loop and return its result."""

        async def call() -> T:
            return work()

        return self.run(call())

    # ---- halting

    @property
    def is_halted(self) -> bool:
        return self.gate is not None

    def halt(self) -> None:
        """Halt the loop. Returns when nothing runs on it any more."""
        if self.gate is not None:
            return
        self.gate = gate = threading.Event()
        blocked = threading.Event()

        def block_loop() -> None:
            blocked.set()
            gate.wait()
            first, self.first = self.first, None
            if first is not None:
                first()

        self.loop.call_soon_threadsafe(block_loop)
        blocked.wait()

    def resume(self, first: Callable[[], object] | None = None) -> None:
        """Resume the loop. `first` is called before all callbacks that wait on the loop."""
        gate, self.gate = self.gate, None
        if gate is not None:
            self.first = first
            gate.set()

    # ---- ending

    def cancel_all(self) -> None:
        """Cancel all tasks on the loop and wait until they have ended."""

        async def cancel_all() -> None:
            kept = (self.main, asyncio.current_task())
            others = [task for task in asyncio.all_tasks() if task not in kept]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.run(cancel_all())

    def end(self) -> None:
        """Stop the loop and its thread. Tasks that still run are cancelled."""
        self.resume()
        self.loop.call_soon_threadsafe(self.ending.set)
        self.thread.join()
