"""SIGINT and SIGTERM for pipelines: the first lets the current run finish, a second stops it."""

from __future__ import annotations

from types import FrameType

from barnabas.cli.terminal.signals import SignalRecorder


class StopSignals(SignalRecorder):
    def __init__(self) -> None:
        self.count = 0
        super().__init__()

    def record(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        super().record(number, frame)

    @property
    def is_requested(self) -> bool:
        return self.number is not None

    @property
    def is_urgent(self) -> bool:
        return self.count > 1
