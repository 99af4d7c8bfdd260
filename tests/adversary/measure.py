"""Run one attack against a measured broker and compare the figures with the budget."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from barnabas.world.network import raise_descriptor_limit
from tests.adversary.broker import MB, Figures, MeasuredBroker
from tests.adversary.generator import Attack, Send
from tests.adversary.hints import Entities
from tests.adversary.stage import PROBE_TOPIC, attacked_broker, set_up
from tests.faults.raw_client import RawClient
from tests.raw_connection import SIZE

TURN_CPU_MS_MAX = 50.0
"""CPU time of one turn of the event loop. The broker aims at 10 ms. CPU time does not include waiting for a core, but
a shared core and a cold cache make the same code up to three times as slow."""
ANSWER_BYTES_MAX = 32 * MB
GROWTH_BYTES_MAX = 160 * MB
"""Peak memory of one attack: a decoded request of 1 MiB, the largest answer, and its copy on the way to the socket."""
DEADLINE_SECONDS = 30.0
REPETITIONS_MAX = 4
"""A busy machine can exceed the budget in several runs of an attack that takes seconds, but not in all of them."""
SIGNS_OF_A_DEFECT = ("request failed", "task failed", "Traceback", "never retrieved")
CHUNK = 1 << 20


class Outcome(NamedTuple):
    """The result of an attack."""

    name: str
    figures: Figures
    growth_bytes: int
    growth_bytes_max: int
    tally: Tally
    seconds: float
    unanswered: str
    defects: list[str]
    """Lines of the broker's log that must not be there."""

    def __str__(self) -> str:
        figures, tally = self.figures, self.tally
        return (
            f"{self.name} ({tally.sent_bytes:,} B): turn {figures.turn_cpu_ms:,.0f} ms CPU, "
            f"stall {figures.gap_wall_ms:,.0f} ms, +{self.growth_bytes / MB:,.0f} MB, "
            f"answer {tally.largest_bytes / MB:,.1f} MB, {self.seconds:.1f} s, "
            f"{tally.answers} answered, {tally.closed} closed [{figures.where}]"
        )

    def violations(self) -> list[str]:
        figures, found = self.figures, []
        if figures.turn_cpu_ms > TURN_CPU_MS_MAX:
            found.append(f"a turn took {figures.turn_cpu_ms:,.0f} ms of CPU in {figures.where}")
        if self.growth_bytes > self.growth_bytes_max:
            found.append(f"memory grew by {self.growth_bytes / MB:,.0f} MB")
        if self.tally.largest_bytes > ANSWER_BYTES_MAX:
            found.append(f"an answer has {self.tally.largest_bytes / MB:,.1f} MB")
        if self.unanswered:
            found.append(self.unanswered)
        return found + self.defects


def run_with_retries(run: Callable[[], Outcome]) -> Outcome:
    """Run an attack. If it is over budget, repeat it: an effect of the code recurs each time."""
    outcome = run()
    print(outcome)
    for _ in range(REPETITIONS_MAX):
        if not outcome.violations() or outcome.unanswered:
            break
        outcome = run()
        print(outcome)
    return outcome


class Tally:
    """Counts requests sent and responses received."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.deadline = time.monotonic() + DEADLINE_SECONDS
        self.sent_bytes = self.answers = self.largest_bytes = 0
        self.closed = 0
        """Connections that the broker closed instead of answering."""

    def exchange(self, send: Send) -> None:
        """Send on a new connection, and read all responses."""
        with self.connect() as connection:
            self.send(connection, send.data)
            self.receive(connection, send.answers)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, remaining(self.deadline))

    def send(self, connection: socket.socket, data: bytes) -> None:
        connection.settimeout(remaining(self.deadline))
        self.sent_bytes += len(data)
        with suppress(ConnectionError):  # detected when the response is read
            connection.sendall(data)

    def receive(self, connection: socket.socket, answers: int = 1) -> None:
        """Receive responses. One that announces more than the limit is not read."""
        for _ in range(answers):
            try:
                size = SIZE.unpack(receive(connection, 4, self.deadline, keep=True))[0]
                self.largest_bytes = max(self.largest_bytes, size)
                if size > ANSWER_BYTES_MAX:
                    return
                receive(connection, size, self.deadline)
            except ConnectionError:
                self.closed += 1
                return
            self.answers += 1


class Attacker:
    """Runs attacks one at a time."""

    def __init__(self, broker: MeasuredBroker) -> None:
        self.broker = broker
        self.log_read = broker.log_path.stat().st_size

    def run(self, attack: Attack) -> Outcome:
        def send_all(tally: Tally) -> None:
            for send in attack.sends:
                tally.exchange(send)

        return self.measure(str(attack), send_all)

    def measure(
        self,
        name: str,
        attack: Callable[[Tally], None],
        growth_bytes_max: int = GROWTH_BYTES_MAX,
    ) -> Outcome:
        before = self.broker.reset()
        began = time.monotonic()
        tally = Tally(self.broker.address)
        unanswered = ""
        try:
            attack(tally)
        except TimeoutError:
            unanswered = f"neither answered nor closed within {DEADLINE_SECONDS:.0f} s"
        seconds = time.monotonic() - began
        figures = self.broker.report()
        growth_bytes = figures.peak_bytes - before.rss_bytes
        defects = self.new_defects()
        return Outcome(
            name, figures, growth_bytes, growth_bytes_max, tally, seconds, unanswered, defects
        )

    def new_defects(self) -> list[str]:
        with self.broker.log_path.open() as log:
            log.seek(self.log_read)
            lines = log.read()
            self.log_read = log.tell()
        found = [line for line in lines.splitlines() if any(s in line for s in SIGNS_OF_A_DEFECT)]
        return found[:3]

    def check_health(self) -> None:
        """Check that a well-behaved client is still served."""
        with RawClient(self.broker.address) as client:
            offset = client.produce(PROBE_TOPIC, 0, b"healthy").base_offset
            assert [record.value for record in client.fetch(PROBE_TOPIC, 0, offset)] == [b"healthy"]


def receive(connection: socket.socket, size: int, deadline: float, *, keep: bool = False) -> bytes:
    kept = bytearray()
    while size:
        connection.settimeout(remaining(deadline))
        chunk = connection.recv(min(size, CHUNK))
        if not chunk:
            raise ConnectionError("closed by the broker")
        size -= len(chunk)
        if keep:
            kept += chunk
    return bytes(kept)


def remaining(deadline: float) -> float:
    """A timeout for a socket; raises TimeoutError when the time is over."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


Stage = tuple[Attacker, Entities]


class Stages:
    """The attacked broker, replaced by a fresh one after an attack that did damage."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.number = 0
        self.stage: Stage | None = None

    def open(self) -> Stage:
        if self.stage is None:
            raise_descriptor_limit()
            self.number += 1
            broker = attacked_broker(self.where / f"data-{self.number}").start()
            self.stage = Attacker(broker), set_up(broker)
        return self.stage

    def close(self) -> None:
        if self.stage is not None:
            self.stage[0].broker.kill()
            self.stage = None
