"""Signals for commands that run servers: the first requests a clean shutdown, a second an immediate one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import click


class ShutdownSignals:
    """Handlers for signals on the running event loop. Must be created in the main thread."""

    def __init__(self, on_second: Callable[[int], None] | None = None) -> None:
        """`on_second` is called on a second signal, with the exit code of the command."""
        self.on_second = on_second
        self.requested = asyncio.Event()
        self.is_urgent = False
        self.exit_code = 0
        loop = asyncio.get_running_loop()
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup sets SIG_IGN
            numbers.append(signal.SIGHUP)  # the terminal was closed
        for number in numbers:
            loop.add_signal_handler(number, self.on_signal, number)

    def on_signal(self, number: int) -> None:
        self.exit_code = 128 + number
        if self.requested.is_set() and self.on_second is not None:
            self.is_urgent = True
            self.on_second(self.exit_code)
        self.requested.set()

    async def run_until_requested(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`. On a signal before its end, cancel it and raise Exit with the code of the signal."""
        working = asyncio.ensure_future(work)
        requested = asyncio.ensure_future(self.requested.wait())
        try:
            await asyncio.wait([working, requested], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
                raise click.exceptions.Exit(self.exit_code)
        finally:
            working.cancel()
            requested.cancel()
        working.result()
