"""Idempotent producers of several client libraries that write into every partition until they are stopped.

Each runs in its own process (writer_process.py), so that its timestamps do not depend on the load of the test.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.process import ENVIRONMENT
from tests.faults.chaos.ledger import Ledger
from tests.faults.chaos.worker import Worker
from tests.faults.chaos.writer_process import DELIVERY_S

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "tests.faults.chaos.writer_process"]
ENDING_S = 60.0


class Writer(Worker):
    """Reads the results of a writer process and records them in the ledger."""

    def __init__(
        self,
        kind: str,
        servers: str,
        topic: str,
        partitions: int,
        ledger: Ledger,
        log: Path,
        *,
        delivery_s: float = DELIVERY_S,
    ) -> None:
        """A record that is not acknowledged within `delivery_s` counts as failed."""
        super().__init__(kind)
        self.kind = kind
        self.ledger = ledger
        self.log = log
        ledger.begin(kind, partitions)
        with log.open("wb") as written:
            self.process = subprocess.Popen(
                [*COMMAND, kind, servers, topic, str(partitions), str(delivery_s)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=written,
                text=True,
                cwd=ROOT,
                env=ENVIRONMENT,
            )

    def work(self) -> None:
        assert self.process.stdout is not None
        has_finished = False
        for line in self.process.stdout:
            what, *words = line.split(maxsplit=5)
            if what == "ack":
                partition, number, offset = map(int, words[:3])
                sent_at, acked_at = map(float, words[3:])
                self.ledger.acknowledge(
                    self.kind, partition, number, offset=offset, sent_at=sent_at, acked_at=acked_at
                )
            elif what == "unknown":
                self.ledger.unknown.add((self.kind, int(words[0]), int(words[1])))
            elif what == "failed":
                self.ledger.failed.append(f"{self.kind}: {line}")
            else:
                has_finished = True
        assert has_finished, f"{self.kind} exited; last log lines:\n{self.log.read_text()[-2000:]}"

    def finish(self) -> None:
        """Stop writing; returns when all records are acknowledged."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.join(ENDING_S)
        assert not self.is_alive(), f"{self.kind} does not finish"

    def end(self) -> None:
        """End the process in any state."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.join(ENDING_S)
        self.process.stdout.close()
