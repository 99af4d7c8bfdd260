"""Brokers crash at every point of topic creation, expansion and deletion, on both registries, and the cluster
recovers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import BoundedSemaphore

import pytest

from tests.lifecycle.conftest import NewBrokers
from tests.lifecycle.crash import DisturbedError, Row, crash, run_undisturbed
from tests.lifecycle.scenarios import MORE_SCENARIOS, SCENARIOS, Scenario, crash_points, progress
from tests.lifecycle.trap import CrashPoint, Kind
from tests.lifecycle.watched import WatchedCluster

LANES = {"embedded": (2, 1, 1), "zookeeper": (3, 2, 1)}
"""Parallel clusters: half of the time they wait for the end of a session. Repetitions of inconclusive points use fewer,
because the machine was too slow."""
STARTING = BoundedSemaphore(2)
"""Limit of concurrent starts: with more busy brokers, sessions would expire."""
UNDISTURBED = "counted"
ATTEMPTS = 3
Labels = list[tuple[Kind, str]]
Rows = dict[CrashPoint, Row]


@contextmanager
def watched(new_brokers: NewBrokers) -> Iterator[WatchedCluster]:
    with STARTING:
        found = WatchedCluster(new_brokers(ends_sessions=True))
    try:
        yield found
    finally:
        found.stop()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_operation_completes_after_crash_at_every_point(
    new_brokers: NewBrokers, scenario: Scenario, rows: list[Row], notes: list[str]
) -> None:
    crash_everywhere(new_brokers, scenario, rows, notes)


@pytest.mark.parametrize("new_brokers", ["embedded"], indirect=True)
@pytest.mark.parametrize("scenario", MORE_SCENARIOS, ids=lambda scenario: scenario.name)
def test_operation_completes_after_additional_crashes(
    new_brokers: NewBrokers, scenario: Scenario, rows: list[Row], notes: list[str]
) -> None:
    crash_everywhere(new_brokers, scenario, rows, notes)


def crash_everywhere(
    new_brokers: NewBrokers, scenario: Scenario, rows: list[Row], notes: list[str]
) -> None:
    began = time.monotonic()
    found: Rows = {}
    again = 0
    with ExitStack() as stack:
        cluster, labels = start_and_count(stack, new_brokers, scenario)
        registry = cluster.brokers.registry_name
        left = points = crash_points(scenario, labels)
        for lanes in LANES[registry]:
            kept = cluster if left is points else None
            found |= crash_all(kept, new_brokers, scenario, left, labels, lanes)
            left = [point for point in points if found[point].is_inconclusive]
            again += len(left)
            if not left:
                break
        seen, missed = cluster.invariants.states_seen, cluster.invariants.states_missed
    rows += [found[point] for point in points]
    seconds = time.monotonic() - began
    notes.append(
        f"{registry}, {scenario.name}: {len(points)} points in {seconds:.1f} s"
        f"{f', {again} of them repeated because a session had timed out' if again else ''}; "
        f"{summary(labels)}; "
        f"the observer of one cluster saw {seen} of {seen + missed} partition states"
    )
    bad = [row for row in found.values() if row.result != "ok"]
    assert not bad, "\n".join(f"{row.point}: {row.result}" for row in bad)


def start_and_count(
    stack: ExitStack, new_brokers: NewBrokers, scenario: Scenario
) -> tuple[WatchedCluster, Labels]:
    """Start a cluster and count the writes and requests of an undisturbed run."""
    for attempt in range(1, ATTEMPTS + 1):
        cluster = stack.enter_context(watched(new_brokers))
        try:
            return cluster, run_undisturbed(cluster, scenario, UNDISTURBED)
        except DisturbedError:
            if attempt == ATTEMPTS:
                raise
    raise AssertionError


def crash_all(
    cluster: WatchedCluster | None,
    new_brokers: NewBrokers,
    scenario: Scenario,
    points: list[CrashPoint],
    labels: Labels,
    lanes: int,
) -> Rows:
    """Crash at all points in parallel lanes, one of which starts with this cluster."""
    left: SimpleQueue[CrashPoint] = SimpleQueue()
    for point in points:
        left.put(point)
    with ThreadPoolExecutor(lanes) as pool:
        running = [
            pool.submit(
                crash_in_turn, None if lane else cluster, new_brokers, scenario, left, labels
            )
            for lane in range(lanes)
        ]
        return {point: row for lane in running for point, row in lane.result().items()}


def crash_in_turn(
    cluster: WatchedCluster | None,
    new_brokers: NewBrokers,
    scenario: Scenario,
    left: SimpleQueue[CrashPoint],
    labels: Labels,
) -> Rows:
    """Crash at the remaining points, one after the other, on one cluster. After a failure, the next point gets a new
    cluster, so that failures are independent."""
    found: Rows = {}
    with ExitStack() as stack, suppress(Empty):
        while True:
            point = left.get_nowait()
            cluster = cluster or stack.enter_context(watched(new_brokers))
            found[point] = crash_at(cluster, scenario, point, labels)
            if found[point].result != "ok":
                stack.close()
                cluster = None
    return found


def crash_at(cluster: WatchedCluster, scenario: Scenario, point: CrashPoint, labels: Labels) -> Row:
    topic = f"{point.when}-{point.kind}-{point.number}"
    try:
        reached = progress(scenario, point, labels, UNDISTURBED)
        return crash(cluster, scenario, point, topic, reached)
    except Exception as error:  # noqa: BLE001 - becomes a row of the table, checked by the test
        return Row(
            registry=cluster.brokers.registry_name,
            scenario=scenario.name,
            point=str(point),
            result=f"{type(error).__name__}: {error}",
            is_inconclusive=isinstance(error, DisturbedError),
        )


def summary(labels: Labels) -> str:
    """The writes and requests of an undisturbed run."""
    writes = [str(len(label.split())) for kind, label in labels if kind is Kind.WRITE]
    names = Counter(label.split()[0] for kind, label in labels if kind is Kind.REQUEST)
    requests = ", ".join(f"{count} {name}" for name, count in sorted(names.items()))
    return f"undisturbed: {len(writes)} writes ({' and '.join(writes)} znodes), {requests}"
