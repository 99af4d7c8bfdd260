"""Executors of a standalone Spark cluster that this process has started."""

from __future__ import annotations

from contextlib import suppress

import psutil

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


def busy_executors() -> list[psutil.Process]:
    """Executors with Python processes, in order of their process ids."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if EXECUTOR in process.cmdline() and process.children():
                found.append(process)
    return sorted(found, key=lambda process: process.pid)
