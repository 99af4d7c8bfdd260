"""A thread that works until it is told to stop."""

from __future__ import annotations

import threading


class Worker(threading.Thread):
    """`error` is what ended it, if anything but `stopping` did."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - told to the test, which looks at it
            self.error = error

    def work(self) -> None:
        raise NotImplementedError
