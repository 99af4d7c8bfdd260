"""Version and settings of the Python interpreter in a broker process.

Only the commands apply the settings. A program that uses Barnabas as a library keeps its own.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
from itertools import count

import barnabas

logger = logging.getLogger("barnabas.broker")

SWITCH_SECONDS = 0.0005
MALLOC_OPTIONS = {-8: 1, -3: 4 << 20, -1: 4 << 20}
"""M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of glibc, which raises the last two unless they are set.

With thresholds below 1 MB, every batch of 1 MB is copied to new pages of memory, which doubles its CPU time.
"""
FULL_SCAN_INTERVAL = 100
"""Every 100th full garbage collection scans all objects, also frozen ones: 0.5 s for a million objects."""
OLDEST_GENERATION = 2


def log_version() -> None:
    logger.info(
        "starting barnabas=%s code=%s python=%s",
        barnabas.__version__,
        barnabas.code_mode,
        sys.version.split()[0],
    )


def tune_interpreter() -> None:
    shorten_switch_interval()
    freeze_after_collections()
    return_memory()


def shorten_switch_interval() -> None:
    """Let the event loop get the GIL back from a thread after 0.5 ms instead of 5 ms.

    The loop releases the GIL with every system call. While a thread decodes a large request, each of these calls
    would otherwise wait for 5 ms.
    """
    sys.setswitchinterval(SWITCH_SECONDS)


def return_memory() -> None:
    """Let glibc return the memory of large buffers to the system as soon as they are freed.

    By default glibc keeps freed blocks of up to 32 MB, in several heaps for the threads. Here it keeps at most 4 MB.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries do not have it
        for option, value in MALLOC_OPTIONS.items():
            mallopt(option, value)


def freeze_after_collections() -> None:
    """Exclude objects that survived a full garbage collection from later collections.

    Ten thousand partitions are a million objects that live as long as their broker. A full collection scans all of them
    and blocks the event loop: it took a quarter of the time of a controller failover. Few objects are part of cycles;
    reference counting frees all others.
    """
    collections = count(1)

    def on_collection(phase: str, info: dict[str, int]) -> None:
        if info["generation"] != OLDEST_GENERATION:
            return
        if phase == "stop":
            gc.freeze()
        elif next(collections) % FULL_SCAN_INTERVAL == 0:
            gc.unfreeze()

    gc.callbacks.append(on_collection)
