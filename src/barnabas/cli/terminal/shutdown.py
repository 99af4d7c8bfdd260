"""SIGINT and SIGTERM to a command that runs servers: the first asks for an end in order, a second for one at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import click


class Stopping:
    """To be made in the main thread, within the loop."""

    def __init__(self, at_once: Callable[[int], None] | None = None) -> None:
        """`at_once` is told the exit code of the command."""
        self.at_once = at_once
        self.asked = asyncio.Event()
        self.is_urgent = False
        self.exit_code = 0
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.hear, number)

    def hear(self, number: int) -> None:
        self.exit_code = 128 + number
        if self.asked.is_set() and self.at_once is not None:
            self.is_urgent = True
            self.at_once(self.exit_code)
        self.asked.set()

    async def unless_asked(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work; asked to stop meanwhile, break it off and end the command, as interrupted."""
        working = asyncio.ensure_future(work)
        asked = asyncio.ensure_future(self.asked.wait())
        try:
            await asyncio.wait([working, asked], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
                raise click.exceptions.Exit(self.exit_code)
        finally:
            working.cancel()
            asked.cancel()
        working.result()
