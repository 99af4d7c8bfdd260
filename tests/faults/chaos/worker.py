"""A thread that works until it is stopped."""

from __future__ import annotations

import threading


class Worker(threading.Thread):
    """Worker thread. `error` is the exception that ended it, if any."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - the test checks it
            self.error = error

    def work(self) -> None:
        raise NotImplementedError
