"""Stalls the event loops of brokers on a signal. Python imports this at its start if PYTHONPATH names this directory.

SIGUSR1 stalls them forever, SIGUSR2 until the file named by $STALL_UNTIL exists.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable


def guilty_function() -> None:
    while True:
        pass


def slow_function() -> None:
    while not os.path.exists(os.environ["STALL_UNTIL"]):  # noqa: PTH110
        pass


def on_the_loops(work: Callable[[], None]) -> None:
    """Run `work` on all event loops. Signal handlers run in the main thread, but brokers may use other threads."""
    module = sys.modules.get("barnabas.world.loop_thread")
    threads = (
        []
        if module is None
        else [
            found
            for found in gc.get_objects()
            if isinstance(found, module.LoopThread) and "broker" in found.thread.name
        ]
    )
    for found in threads:
        found.loop.call_soon_threadsafe(work)
    if not threads:
        work()


signal.signal(signal.SIGUSR1, lambda _number, _frame: on_the_loops(guilty_function))
signal.signal(signal.SIGUSR2, lambda _number, _frame: on_the_loops(slow_function))
