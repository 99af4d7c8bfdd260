"""The registries that every scenario runs on, and the table of all crash points at the end of the run."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Protocol

import pytest

from barnabas.cluster.zookeeper_servers import ZooKeeperServers
from tests.lifecycle.clusters import Brokers, EmbeddedBrokers
from tests.lifecycle.crash import Row
from tests.lifecycle.processes import ZooKeeperBrokers

ROWS = pytest.StashKey[list[Row]]()
NOTES = pytest.StashKey[list[str]]()
REGISTRIES = ("embedded", "zookeeper")

SHORT_MS, LONG_MS, LASTING_MS = 2000, 4000, 30_000
"""How long a session lasts: in hundreds of crashes, each of which has to wait for it, and is tried again if it was too
short for the machine; in a story that is told once; and where nobody dies, and so nobody has to wait for it."""


class NewBrokers(Protocol):
    def __call__(self, *, session_timeout_ms: int = LONG_MS) -> Brokers: ...


@pytest.fixture(params=REGISTRIES)
def new_brokers(request: pytest.FixtureRequest, tmp_path: Path) -> NewBrokers:
    """Makes clusters that know nothing of each other, not yet started."""
    numbers = itertools.count(1)
    servers: ZooKeeperServers | None = None
    if request.param == "zookeeper":
        servers = request.getfixturevalue("shared_zookeeper")

    def new(*, session_timeout_ms: int = LONG_MS) -> Brokers:
        name = f"cluster-{next(numbers)}"
        if servers is None:
            return EmbeddedBrokers(tmp_path / name)
        chroot = f"{servers.connect_string}/lifecycle-{tmp_path.name}-{name}"
        return ZooKeeperBrokers(tmp_path / name, chroot, session_timeout_ms=session_timeout_ms)

    return new


# ---- the table


@pytest.fixture
def rows(request: pytest.FixtureRequest) -> list[Row]:
    return request.config.stash.setdefault(ROWS, [])


@pytest.fixture
def notes(request: pytest.FixtureRequest) -> list[str]:
    return request.config.stash.setdefault(NOTES, [])


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    rows = config.stash.get(ROWS, [])
    if not rows:
        return
    terminalreporter.section(
        "a creation, an expansion or a deletion, and who died in the middle of it"
    )
    head = (
        f"{'registry':9} {'scenario':25} {'point':19} {'client':9} {'found':13} {'survived':>8} {'whole':>7} "
        f"{'epochs':7} {'stale':6} result"
    )
    terminalreporter.write_line(head)
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        fine = [row for row in rows if row.result == "ok"]
        rows = [row for row in rows if row.result != "ok"]
        # Several hundred lines would stand between the reader and what failed.
        terminalreporter.write_line(f"({len(fine)} that went well are left out)")
    for row in rows:
        terminalreporter.write_line(
            f"{row.registry:9} {row.scenario:25} {row.point:19} {row.client:9} {row.found:13} "
            f"{row.survived_s:7.2f}s {row.recovered_s:6.2f}s {row.epochs:7} {row.replayed:6} {row.result}"
        )
    terminalreporter.write_line(
        "survived: from the death until every survivor knows a leader of every partition, or that there is no topic; "
        "whole: from the return until all are in sync, the topic that was deleted having been created anew"
    )
    terminalreporter.write_line(
        "stale: requests sent once more to a later life of their broker + by a controller since replaced, all refused"
    )
    for note in config.stash.get(NOTES, []):
        terminalreporter.write_line(note)
