"""Settings of the Python interpreter in a broker process.

They are for our own processes only. A program that uses Barnabas as a library chooses its own.
"""

from __future__ import annotations

import gc
import sys
from itertools import count

SWITCH_SECONDS = 0.0005
EVERYTHING_EVERY = 100
"""Of this many full garbage collections one looks at all objects."""
FULL = 2


def tune() -> None:
    share_the_lock()
    collect_less()


def share_the_lock() -> None:
    """Let the event loop take Python's lock back from a thread after 0.5 ms instead of 5.

    The loop releases the lock with every system call. While a thread decodes a large request, each of these calls
    would otherwise cost 5 ms.
    """
    sys.setswitchinterval(SWITCH_SECONDS)


def collect_less() -> None:
    """Exclude objects that survived a full garbage collection from later ones.

    Ten thousand partitions are a million objects that live as long as their broker. A full collection looks at all of
    them while the loop stands still: a quarter of the time in which a controller takes over. Few objects here are part
    of cycles, and all others are freed without a collection.
    """
    collections = count(1)

    def on_collection(phase: str, info: dict[str, int]) -> None:
        if info["generation"] != FULL:
            return
        if phase == "stop":
            gc.freeze()
        elif next(collections) % EVERYTHING_EVERY == 0:
            gc.unfreeze()

    gc.callbacks.append(on_collection)
