"""The seed determines the storm's schedule, and its checks detect faults."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from barnabas.batch.records import Record
from support.waiting import eventually
from tests.faults.chaos.checks import Usage, busy_share, tracebacks, unexplained
from tests.faults.chaos.proxies import Direction, Disturbance, Proxies
from tests.faults.chaos.schedule import Fault, Kind, make_schedule
from tests.faults.chaos.side_topics import compaction_faults, key_of, retention_faults
from tests.faults.test_chaos import STORM_SECONDS, STORM_SEED

LINK = (1, 2)


def schedule(seed: int, seconds: float = 180.0, without: tuple[Kind, ...] = ()) -> list[Fault]:
    return make_schedule(seed, seconds, session_s=2.0, without=without)


# ---- schedule


def test_seed_decides_schedule() -> None:
    assert schedule(1) == schedule(1)
    assert schedule(1) != schedule(2)
    assert [fault for fault in schedule(1, 180.0) if fault.end_s <= 60.0] == schedule(1, 60.0)


@pytest.mark.parametrize(("seed", "seconds"), [(3, 180.0), (STORM_SEED, STORM_SECONDS)])
def test_schedule_has_all_kinds_and_ends_in_time(seed: int, seconds: float) -> None:
    faults = schedule(seed, seconds)
    assert {fault.kind for fault in faults} == set(Kind)
    assert max(fault.end_s for fault in faults) <= seconds
    assert any(
        one.end_s > other.at_s > one.at_s and one.kind != other.kind
        for one in faults
        for other in faults
    )


def test_skipped_kind_does_not_change_others() -> None:
    kept = [fault for fault in schedule(4) if fault.kind is not Kind.DISK_FULL]
    assert schedule(4, without=(Kind.DISK_FULL,)) == kept


# ---- process checks

LOG = """\
2026-01-01 INFO barnabas fine
2026-01-01 ERROR asyncio Task exception was never retrieved
Traceback (most recent call last):
  File "x.py", line 1, in f
    f()
KeyError: 'x'
2026-01-01 INFO barnabas fine again
"""


def test_tracebacks_are_found_unless_they_are_explained() -> None:
    (found,) = tracebacks(LOG)
    assert found.startswith("2026-01-01 ERROR asyncio")
    assert found.endswith("KeyError: 'x'")
    assert unexplained([found], [("^ValueError", "another")]) == [found]
    assert unexplained([found], [("^KeyError", "a reason")]) == []


def test_busy_loop_is_found_on_busy_machine() -> None:
    before = Usage(at=0.0, cpu_s=1.0, starved_s=2.0)
    assert busy_share(before, Usage(at=5.0, cpu_s=2.0, starved_s=6.0)) == pytest.approx(1.0)
    assert busy_share(before, Usage(at=5.0, cpu_s=2.0, starved_s=2.0)) == pytest.approx(0.2)


# ---- side topics


def log_of(numbers: dict[int, int]) -> list[Record]:
    """Records from a map of number to offset."""
    return [Record(offset, 0, key_of(number), b"%d" % number) for number, offset in numbers.items()]


def test_compaction_must_keep_last_value_of_each_key() -> None:
    offsets = {1: 0, 2: 1, 21: 2}
    assert compaction_faults(offsets, log_of({2: 1, 21: 2})) == []
    assert "key-1" in compaction_faults(offsets, log_of({1: 0, 2: 1}))[0]
    assert "increase" in compaction_faults(offsets, log_of({21: 2, 2: 1}))[0]


@pytest.mark.parametrize(
    ("log", "fault"),
    [
        ({2: 2, 4: 4}, "missing"),
        ({2: 2, 4: 3}, "lost: 3"),
        ({2: 2, 4: 3, 3: 4}, "acknowledged at 3, is at 4"),
        ({}, "empty"),
    ],
)
def test_retention_must_keep_contiguous_tail(log: dict[int, int], fault: str) -> None:
    offsets = {number: number for number in range(5)}
    assert retention_faults(offsets, log_of({2: 2, 3: 3, 4: 4})) == []
    assert any(fault in found for found in retention_faults(offsets, log_of(log)))


# ---- proxies


class Echo:
    """Server that echoes every byte."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.server.getsockname()[1]
        self.received = b""
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            connection, _ = self.server.accept()
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection: socket.socket) -> None:
        try:
            while data := connection.recv(1000):
                self.received += data
                connection.sendall(data)
        except OSError:
            connection.close()


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def proxies() -> Iterator[Proxies]:
    made = Proxies(lambda: {os.getpid(): 1})
    yield made
    made.end()


@pytest.fixture
def client(echo: Echo, proxies: Proxies) -> Iterator[socket.socket]:
    """A connection from this process, which counts as broker 1."""
    port = proxies.between(2, echo.port)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as made:
        made.sendall(b"a")
        assert made.recv(10) == b"a"
        made.settimeout(0.3)
        yield made


def test_held_link_delivers_later(client: socket.socket, proxies: Proxies) -> None:
    proxies.disturb(LINK, 0, Disturbance(holds=True))
    client.sendall(b"b")
    with pytest.raises(TimeoutError):
        client.recv(10)
    proxies.heal(LINK, 0)
    client.settimeout(10)
    assert client.recv(10) == b"b"


@pytest.mark.parametrize("direction", Direction)
def test_dropped_bytes_reset_connection(
    client: socket.socket, echo: Echo, proxies: Proxies, direction: Direction
) -> None:
    proxies.disturb(LINK, 0, Disturbance(swallows=direction))
    client.sendall(b"b")
    if direction is Direction.RESPONSES:
        eventually(lambda: echo.received == b"ab", "requests arrive")
    with pytest.raises(TimeoutError):
        client.recv(10)
    proxies.heal(LINK, 0)
    client.settimeout(10)
    with pytest.raises(ConnectionError):
        client.recv(10)
    assert echo.received == (b"ab" if direction is Direction.RESPONSES else b"a")


def test_reset_link_refuses_connections_until_it_is_mended(
    client: socket.socket, proxies: Proxies
) -> None:
    address = client.getpeername()
    proxies.disturb(LINK, 0, Disturbance(resets=True))
    client.settimeout(10)
    with pytest.raises(ConnectionError):
        client.recv(10)
    # The reset may arrive during connect() already.
    with pytest.raises(ConnectionError), socket.create_connection(address, timeout=10) as refused:
        refused.recv(10)
    proxies.heal(LINK, 0)
    with socket.create_connection(address, timeout=10) as again:
        again.sendall(b"c")
        assert again.recv(10) == b"c"


def test_latest_of_overlapping_disturbances_counts(client: socket.socket, proxies: Proxies) -> None:
    proxies.disturb(LINK, 0, Disturbance(holds=True))
    proxies.disturb(LINK, 1, Disturbance(latency_s=0.01))
    client.settimeout(10)
    client.sendall(b"b")
    assert client.recv(10) == b"b"
    proxies.heal(LINK, 1)
    client.settimeout(0.3)
    client.sendall(b"c")
    with pytest.raises(TimeoutError):
        client.recv(10)
