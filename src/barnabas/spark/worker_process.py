"""Spark's Python workers: shorter garbage collections, and input without a delay.

Spark's daemon collects garbage after every task. In a worker with PySpark, pyarrow and pandas this takes 50 ms, because
it visits every object of these modules. A small micro-batch needs six workers, which then spent most of their CPU time
on it.

Spark sends the command of a task, and then its input, over a TCP connection with Nagle's algorithm: the input waits
until the command is acknowledged. The kernel of the worker delays this acknowledgement by 40 ms, because it expects a
response that carries it. So a worker acknowledges a command when it unpickles an object of it.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

DAEMON = "pyspark.daemon"
OPEN_FILES = Path("/proc/self/fd")


class TaskObject:
    """Base of objects in the command of a task. Spark pickles them in the driver."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if is_worker():
            acknowledge_received()


def acknowledge_received() -> None:
    """Acknowledge at once what this process has received on its TCP connections. Only Linux has this option."""
    if sys.platform != "linux":
        return
    for path in OPEN_FILES.iterdir():
        if path.is_socket():
            # Another thread may close the file, and other sockets do not have this option.
            with suppress(OSError), socket.socket(fileno=os.dup(int(path.name))) as duplicate:
                duplicate.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


class ExemptModules:
    """Number of the modules whose objects are exempt from garbage collection in this process."""

    count = 0


def exempt_modules_from_gc() -> None:
    """In a worker of Spark, exempt all present objects from garbage collection if modules were imported since the last
    call. The objects stay until the process ends."""
    found = len(sys.modules)
    if found != ExemptModules.count and is_worker():
        ExemptModules.count = found
        gc.freeze()


def is_worker() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == DAEMON
