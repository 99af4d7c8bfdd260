"""SIGINT and SIGTERM for commands without an event loop: raised as exceptions (exit codes 130 and 143), or recorded."""

from __future__ import annotations

import signal
import threading
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(SystemExit):
    """Raised on SIGTERM. After a KeyboardInterrupt, the prompt of `barnabas spark` would continue."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


def exception_for(number: int) -> KeyboardInterrupt | Terminated:
    return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()


def raise_at_once(number: int, _frame: FrameType | None) -> None:
    raise exception_for(number)


def raise_on_signals() -> None:
    """Raise KeyboardInterrupt on SIGINT and Terminated on SIGTERM.

    This also replaces PySpark's handler, which may call Java during another call to Java.
    """
    for number in SIGNALS:
        signal.signal(number, raise_at_once)


class SignalRecorder:
    """Records a signal instead of raising an exception, which must not interrupt a call to Java."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.received = threading.Event()
        for number in SIGNALS:
            signal.signal(number, self.record)

    def record(self, number: int, _frame: FrameType | None) -> None:
        self.number = number
        self.received.set()

    def wait(self, seconds: float) -> bool:
        return self.received.wait(seconds)

    def raise_if_received(self) -> None:
        if self.number is not None:
            raise exception_for(self.number)
