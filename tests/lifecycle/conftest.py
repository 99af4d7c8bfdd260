"""The registries for all scenarios, and the table of all crash points at the end of the run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from barnabas.cluster.zookeeper_servers import ZooKeeperServers
from tests.lifecycle.clusters import Brokers, EmbeddedBrokers
from tests.lifecycle.crash import Row
from tests.lifecycle.processes import ZooKeeperBrokers
from tests.lifecycle.watched import WatchedCluster

ROWS = pytest.StashKey[list[Row]]()
NOTES = pytest.StashKey[list[str]]()
REGISTRIES = ("embedded", "zookeeper")

LONG_MS, LASTING_MS = 4000, 30_000
"""Session timeouts. LONG: tests with a single failure, which wait for it, and tests with hundreds of crashes, which end
the sessions of killed brokers earlier. LASTING: tests without failures, which never wait for it."""

brokers_fail = pytest.mark.parametrize("session_timeout_ms", [LONG_MS], ids=["failures"])
"""For tests that kill brokers of the fixture `cluster`."""


class NewBrokers(Protocol):
    def __call__(
        self, *, session_timeout_ms: int = LONG_MS, ends_sessions: bool = False
    ) -> Brokers: ...


@pytest.fixture(params=REGISTRIES)
def new_brokers(request: pytest.FixtureRequest, tmp_path: Path) -> NewBrokers:
    """Create independent clusters, not yet started."""
    numbers = itertools.count(1)
    servers: ZooKeeperServers | None = None
    if request.param == "zookeeper":
        servers = request.getfixturevalue("shared_zookeeper")

    def new(*, session_timeout_ms: int = LONG_MS, ends_sessions: bool = False) -> Brokers:
        name = f"cluster-{next(numbers)}"
        if servers is None:
            return EmbeddedBrokers(tmp_path / name)
        chroot = f"{servers.connect_string}/lifecycle-{tmp_path.name}-{name}"
        return ZooKeeperBrokers(
            tmp_path / name,
            chroot,
            session_timeout_ms=session_timeout_ms,
            ends_sessions=ends_sessions,
        )

    return new


@pytest.fixture
def session_timeout_ms() -> int:
    return LASTING_MS


@pytest.fixture
def edited_cluster(new_brokers: NewBrokers, session_timeout_ms: int) -> Iterator[WatchedCluster]:
    """A cluster for tests that write znodes themselves. They may violate invariants."""
    found = WatchedCluster(new_brokers(session_timeout_ms=session_timeout_ms))
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture
def cluster(edited_cluster: WatchedCluster) -> Iterator[WatchedCluster]:
    yield edited_cluster
    edited_cluster.check_requests()
    assert not edited_cluster.invariants.broken


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
    terminalreporter.section("crashes of brokers during topic creation, expansion and deletion")
    head = (
        f"{'registry':9} {'scenario':25} {'point':19} {'client':9} {'found':13} {'survived':>8} {'in sync':>7} "
        f"{'epochs':7} {'stale':6} result"
    )
    terminalreporter.write_line(head)
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        fine = [row for row in rows if row.result == "ok"]
        rows = [row for row in rows if row.result != "ok"]
        # Several hundred lines would hide the failures.
        terminalreporter.write_line(f"({len(fine)} successful rows are not shown)")
    for row in rows:
        terminalreporter.write_line(
            f"{row.registry:9} {row.scenario:25} {row.point:19} {row.client:9} {row.found:13} "
            f"{row.survived_s:7.2f}s {row.recovered_s:6.2f}s {row.epochs:7} {row.replayed:6} {row.result}"
        )
    terminalreporter.write_line(
        "survived: from the crash until every survivor knows a leader of every partition, or that there is no topic; "
        "in sync: from the restart until all replicas are in sync, and a deleted topic was created again"
    )
    terminalreporter.write_line(
        "stale: requests replayed to a restarted broker + requests of a replaced controller, all rejected"
    )
    for note in config.stash.get(NOTES, []):
        terminalreporter.write_line(note)
