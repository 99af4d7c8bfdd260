"""SIGINT and SIGTERM while Java runs as a child of this process.

Without a handler, SIGTERM ends Python in the middle of a call to Java, and Java prints a long stack trace.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from barnabas.cli.terminal.signals import SIGNALS, Terminated, exception_for, raise_at_once


@contextmanager
def defer_signals() -> Iterator[None]:
    """Raise a signal only when Spark has started; a second one as soon as Java can be reached.

    A JVM that is abandoned while it starts may run for ever, or print a stack trace to the terminal later. Once Python
    is connected to the JVM, the JVM ends with this process.
    """
    from pyspark import SparkContext

    received: list[int] = []

    def record_first(number: int, frame: FrameType | None) -> None:
        if received and SparkContext._gateway is not None:
            raise_at_once(number, frame)
        received.append(number)

    for number in SIGNALS:
        signal.signal(number, record_first)
    try:
        yield
    except Exception:
        # A signal to the whole process group (from a terminal, timeout or a container) also ends Java.
        if not received:
            raise
    if received:
        raise exception_for(received[0])


@contextmanager
def unmask_interrupts() -> Iterator[None]:
    """Raise the original interrupt if PySpark's cleanup failed and raised another error instead."""
    try:
        yield
    except Exception as error:
        context: BaseException | None = error
        while context is not None:
            if isinstance(context, KeyboardInterrupt | Terminated):
                raise type(context)() from None
            context = context.__context__
        raise
