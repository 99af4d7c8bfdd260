"""Run one attack against a measured broker and compare the figures with the budget."""

from __future__ import annotations

import socket
import time
from typing import NamedTuple

from tests.adversary.broker import MB, Figures, MeasuredBroker
from tests.adversary.generator import Attack, Send
from tests.adversary.stage import PROBE_TOPIC
from tests.faults.raw_client import RawClient
from tests.raw_connection import SIZE

TURN_CPU_MS_MAX = 50.0
"""CPU time of one turn of the event loop. The broker aims at 10 ms. CPU time does not include waiting for a core, but
a shared core and a cold cache make the same code up to three times as slow, and a garbage collection may fall into any
turn."""
ANSWER_BYTES_MAX = 32 * MB
GROWTH_BYTES_MAX = 160 * MB
"""Peak memory of one attack: a decoded request of 1 MiB, the largest answer, and its copy on the way to the socket."""
DEADLINE_SECONDS = 30.0
SIGNS_OF_A_DEFECT = ("request failed", "task failed", "Traceback", "never retrieved")
CHUNK = 1 << 20


class Outcome(NamedTuple):
    """What an attack achieved."""

    attack: Attack
    figures: Figures
    growth_bytes: int
    answers: int
    closed: int
    """Connections that the broker closed instead of answering."""
    largest_answer_bytes: int
    seconds: float
    unanswered: str
    defects: list[str]
    """Lines of the broker's log that must not be there."""

    def __str__(self) -> str:
        figures = self.figures
        return (
            f"{self.attack}: turn {figures.turn_cpu_ms:,.0f} ms CPU, "
            f"stall {figures.gap_wall_ms:,.0f} ms, +{self.growth_bytes / MB:,.0f} MB, "
            f"answer {self.largest_answer_bytes / MB:,.1f} MB, {self.seconds:.1f} s, "
            f"{self.answers} answered, {self.closed} closed [{figures.where}]"
        )

    def violations(self) -> list[str]:
        figures, found = self.figures, []
        if figures.turn_cpu_ms > TURN_CPU_MS_MAX:
            found.append(f"a turn took {figures.turn_cpu_ms:,.0f} ms of CPU in {figures.where}")
        if self.growth_bytes > GROWTH_BYTES_MAX:
            found.append(f"memory grew by {self.growth_bytes / MB:,.0f} MB")
        if self.largest_answer_bytes > ANSWER_BYTES_MAX:
            found.append(f"an answer has {self.largest_answer_bytes / MB:,.1f} MB")
        if self.unanswered:
            found.append(self.unanswered)
        return found + self.defects


class Attacker:
    """Runs attacks one at a time."""

    def __init__(self, broker: MeasuredBroker) -> None:
        self.broker = broker
        self.log_read = broker.log_path.stat().st_size

    def run(self, attack: Attack) -> Outcome:
        before = self.broker.reset()
        began = time.monotonic()
        answers = closed = largest = 0
        unanswered = ""
        for send in attack.sends:
            try:
                found, sizes = exchange(self.broker.address, send, began + DEADLINE_SECONDS)
            except TimeoutError:
                unanswered = f"neither answered nor closed within {DEADLINE_SECONDS:.0f} s"
                break
            answers += found
            closed += found < send.answers
            largest = max(largest, *sizes, 0)
        seconds = time.monotonic() - began
        figures = self.broker.report()
        return Outcome(
            attack,
            figures,
            figures.peak_bytes - before.rss_bytes,
            answers,
            closed,
            largest,
            seconds,
            unanswered,
            self.new_defects(),
        )

    def new_defects(self) -> list[str]:
        with self.broker.log_path.open() as log:
            log.seek(self.log_read)
            lines = log.read()
            self.log_read = log.tell()
        found = [line for line in lines.splitlines() if any(s in line for s in SIGNS_OF_A_DEFECT)]
        return found[:3]

    def check_health(self) -> None:
        """A well-behaved client is still served."""
        with RawClient(self.broker.address) as client:
            offset = client.produce(PROBE_TOPIC, 0, b"healthy").base_offset
            assert [record.value for record in client.fetch(PROBE_TOPIC, 0, offset)] == [b"healthy"]


def exchange(address: tuple[str, int], send: Send, deadline: float) -> tuple[int, list[int]]:
    """Send, and read to the last answer or to the end of the connection: the number of answers, and their sizes.

    An answer that announces more than it may have is not read.
    """
    sizes: list[int] = []
    with socket.create_connection(address, left(deadline)) as connection:
        try:
            connection.settimeout(left(deadline))
            connection.sendall(send.data)
            while len(sizes) < send.answers:
                size = SIZE.unpack(receive(connection, 4, deadline, keep=True))[0]
                sizes.append(size)
                if size > ANSWER_BYTES_MAX:
                    break
                receive(connection, size, deadline)
        except ConnectionError:
            return len(sizes), sizes
    return len(sizes), sizes


def receive(connection: socket.socket, size: int, deadline: float, *, keep: bool = False) -> bytes:
    kept = bytearray()
    while size:
        connection.settimeout(left(deadline))
        chunk = connection.recv(min(size, CHUNK))
        if not chunk:
            raise ConnectionError("closed by the broker")
        size -= len(chunk)
        if keep:
            kept += chunk
    return bytes(kept)


def left(deadline: float) -> float:
    """A timeout for a socket; raises TimeoutError when the time is over."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds
