"""Spark's Python workers: shorter garbage collections.

Spark's daemon collects garbage after every task. In a worker with PySpark, pyarrow and pandas this takes 50 ms, because
it visits every object of these modules. A small micro-batch needs six workers, which then spent most of their CPU time
on it.
"""

from __future__ import annotations

import gc
import sys

DAEMON = "pyspark.daemon"


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
