"""A measured broker in a child process."""

from __future__ import annotations

import json
import sys
from typing import NamedTuple, Self

from support.broker import START_SECONDS, BrokerProcess

MB = 1 << 20
ANSWER_SECONDS = 60.0


class Figures(NamedTuple):
    """Measurements of the broker since the last reset."""

    turn_cpu_ms: float
    where: str
    gap_cpu_ms: float
    gap_wall_ms: float
    turns: int
    rss_bytes: int
    peak_bytes: int


class MeasuredBroker(BrokerProcess):
    """A broker that reports its longest turn and its peak memory."""

    def start(self) -> Self:
        settings = [f"{key}={value}" for key, value in self.settings.items()]
        command = [sys.executable, "-m", "tests.adversary.measured_broker"]
        self.launch([*command, str(self.data), str(self.port), *settings])
        line = self.running.read_line(START_SECONDS)
        assert line.startswith("up "), f"no start: {line!r}: {self.running.describe()}"
        self.epoch = int(line.split()[1])
        return self

    def ask(self, command: str) -> Figures:
        self.running.send(command)
        return Figures(**json.loads(self.running.read_line(ANSWER_SECONDS)))

    def reset(self) -> Figures:
        """Start a new measurement."""
        return self.ask("reset")

    def report(self) -> Figures:
        return self.ask("report")
