"""Settings of the Python interpreter in a broker process.

They are for our own processes only. A program that uses Barnabas as a library chooses its own.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from itertools import count

SWITCH_SECONDS = 0.0005
MALLOC_OPTIONS = {-8: 1, -3: 256 * 1024, -1: 128 * 1024}
"""M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of glibc. Setting the last two keeps glibc from raising them."""
FULL_SCAN_INTERVAL = 100
"""Of this many full garbage collections one looks at all objects, which takes 0.5 s for a million of them."""
FULL_COLLECTION = 2


def tune_interpreter() -> None:
    shorten_switch_interval()
    freeze_after_collections()
    return_memory()


def shorten_switch_interval() -> None:
    """Let the event loop take Python's lock back from a thread after 0.5 ms instead of 5.

    The loop releases the lock with every system call. While a thread decodes a large request, each of these calls
    would otherwise cost 5 ms.
    """
    sys.setswitchinterval(SWITCH_SECONDS)


def return_memory() -> None:
    """Let glibc return the memory of large buffers to the system as soon as they are freed.

    By default it keeps up to 32 MB of each, and one heap for each thread.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries do not have it
        for option, value in MALLOC_OPTIONS.items():
            mallopt(option, value)


def freeze_after_collections() -> None:
    """Exclude objects that survived a full garbage collection from later ones.

    Ten thousand partitions are a million objects that live as long as their broker. A full collection looks at all of
    them while the loop stands still: a quarter of the time in which a controller takes over. Few objects here are part
    of cycles, and all others are freed without a collection.
    """
    collections = count(1)

    def on_collection(phase: str, info: dict[str, int]) -> None:
        if info["generation"] != FULL_COLLECTION:
            return
        if phase == "stop":
            gc.freeze()
        elif next(collections) % FULL_SCAN_INTERVAL == 0:
            gc.unfreeze()

    gc.callbacks.append(on_collection)
