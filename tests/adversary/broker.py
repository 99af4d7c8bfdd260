"""A measured broker in a child process, as the tests see it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import NamedTuple, Self

from tests.broker_process import BrokerProcess
from tests.child_process import ENVIRONMENT

MB = 1 << 20


class Figures(NamedTuple):
    """What the broker measured since the last reset."""

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
        with self.log_path.open("a") as log:
            self.process = subprocess.Popen(
                [*command, str(self.data), str(self.port), *settings],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=ENVIRONMENT,
            )
        line = self.answer_line()
        assert line.startswith("up "), f"the broker did not start: {line!r}\n{self.log()[-2000:]}"
        self.epoch = int(line.split()[1])
        return self

    def answer_line(self) -> str:
        assert self.running.stdout is not None
        return self.running.stdout.readline()

    def ask(self, command: str) -> Figures:
        assert self.running.stdin is not None
        self.running.stdin.write(command + "\n")
        self.running.stdin.flush()
        return Figures(**json.loads(self.answer_line()))

    def reset(self) -> Figures:
        """Start a new measurement."""
        return self.ask("reset")

    def report(self) -> Figures:
        return self.ask("report")

    def reap(self) -> int:
        assert self.running.stdin is not None
        self.running.stdin.close()
        return super().reap()
