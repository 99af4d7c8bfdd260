"""A recorder of coordinator events that keeps them in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from barnabas.history.coordinator_event import read_coordinator_event
from barnabas.history.coordinator_recorder import CoordinatorRecorder
from barnabas.history.recorder import EventLine
from barnabas.model import BrokerId

NOW_MS = 1_777_622_400_123
RUN = 1_777_000_000_000


class ManualTime:
    def __init__(self) -> None:
        self.at_ms = NOW_MS

    def now_ms(self) -> int:
        return self.at_ms


class CoordinatorEventList:
    """Receives events. Each must be valid for readers."""

    def __init__(self) -> None:
        self.clock = ManualTime()
        self.lines: list[EventLine] = []
        self.recorder = CoordinatorRecorder(BrokerId(2), RUN, self.clock, self)

    def append(self, events: Sequence[EventLine]) -> None:
        assert all(read_coordinator_event(each.line.encode()) is not None for each in events)
        self.lines += events

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(each.line) for each in self.lines]

    def facts(self, *names: str) -> list[tuple[Any, ...]]:
        """Return these fields of each event."""
        return [tuple(event.get(name) for name in names) for event in self.events]
