"""SIGINT and SIGTERM while Java runs beside this process: both end it in order, with exit codes 130 and 143.

Without a handler SIGTERM would end Python in the middle of a word to Java, which then tells of it with a page of stack.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(SystemExit):
    """No KeyboardInterrupt: after one of these the prompt of `barnabas spark` goes on."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


def raised_by(number: int) -> KeyboardInterrupt | Terminated:
    return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()


def raise_at_once(number: int, _frame: FrameType | None) -> None:
    raise raised_by(number)


def raise_on_signals() -> None:
    """Also in place of PySpark's own handler, which talks to Java in the middle of whatever was being said to Java."""
    for number in SIGNALS:
        signal.signal(number, raise_at_once)


@contextmanager
def held_back() -> Iterator[None]:
    """Java, left alone while it starts, lives on for ever where it has not yet told how to reach it, and otherwise dies
    with a page of its stack on a terminal already used for other things. So an interruption waits until Spark is
    up; a second one waits only until Java can be reached, since from then on it ends with this process."""
    from pyspark import SparkContext

    came: list[int] = []

    def note_first(number: int, frame: FrameType | None) -> None:
        if came and SparkContext._gateway is not None:
            raise_at_once(number, frame)
        came.append(number)

    for number in SIGNALS:
        signal.signal(number, note_first)
    try:
        yield
    except Exception:
        # Who ends a whole group of processes (a terminal, timeout, a container) ends Java too. That it died is no news.
        if not came:
            raise
    if came:
        raise raised_by(came[0])


@contextmanager
def interruptions() -> Iterator[None]:
    """What PySpark does on its way out of a call that was interrupted may fail, and must not hide why."""
    try:
        yield
    except Exception as error:
        context: BaseException | None = error
        while context is not None:
            if isinstance(context, KeyboardInterrupt | Terminated):
                raise type(context)() from None
            context = context.__context__
        raise


class Noted:
    """The signal is noted, not raised: it must not cut a call to Java in two."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.came = threading.Event()
        for number in SIGNALS:
            signal.signal(number, self.note)

    def note(self, number: int, _frame: FrameType | None) -> None:
        self.number = number
        self.came.set()

    def wait(self, seconds: float) -> bool:
        return self.came.wait(seconds)

    def raise_if_any(self) -> None:
        if self.number is not None:
            raise raised_by(self.number)
