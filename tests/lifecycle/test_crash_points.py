"""Brokers die at every point of a creation, an expansion and a deletion, on both registries, and the cluster is well
again afterwards."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import BoundedSemaphore

import pytest

from tests.lifecycle.conftest import SHORT_MS, NewBrokers
from tests.lifecycle.crash import Disturbed, Row, crash, undisturbed
from tests.lifecycle.scenarios import MORE_SCENARIOS, SCENARIOS, Scenario, crash_points, progress
from tests.lifecycle.trap import CrashPoint, Kind
from tests.lifecycle.watched import Watched

LANES = {"embedded": (2, 1, 1), "zookeeper": (6, 3, 1)}
"""Clusters side by side: most of the time they wait for a session to time out. Fewer for those points that said nothing
before, as the machine was too slow."""
STARTING = BoundedSemaphore(2)
"""So many are started at a time: brokers of many more, all of them busy, would miss their own sessions."""
COUNTED = "counted"
ATTEMPTS = 3
Labels = list[tuple[Kind, str]]
Rows = dict[CrashPoint, Row]


@contextmanager
def watched(new_brokers: NewBrokers) -> Iterator[Watched]:
    with STARTING:
        found = Watched(new_brokers(session_timeout_ms=SHORT_MS))
    try:
        yield found
    finally:
        found.stop()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_whoever_dies_at_whichever_point_what_was_begun_comes_to_its_end(
    new_brokers: NewBrokers, scenario: Scenario, rows: list[Row], notes: list[str]
) -> None:
    crash_everywhere(new_brokers, scenario, rows, notes)


@pytest.mark.parametrize("new_brokers", ["embedded"], indirect=True)
@pytest.mark.parametrize("scenario", MORE_SCENARIOS, ids=lambda scenario: scenario.name)
def test_more_of_them_may_die_at_whichever_point(
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
        cluster, labels = counted(stack, new_brokers, scenario)
        registry = cluster.brokers.registry_name
        left = points = crash_points(scenario, labels)
        for lanes in LANES[registry]:
            kept = cluster if left is points else None
            found |= crash_all(kept, new_brokers, scenario, left, labels, lanes)
            left = [point for point in points if found[point].says_nothing]
            again += len(left)
            if not left:
                break
        seen, missed = cluster.invariants.states_seen, cluster.invariants.states_missed
    rows += [found[point] for point in points]
    seconds = time.monotonic() - began
    notes.append(
        f"{registry}, {scenario.name}: {len(points)} points in {seconds:.1f} s"
        f"{f', {again} of them once more, as a session had timed out' if again else ''}; "
        f"{summary(labels)}; "
        f"the observer of one cluster saw {seen} of {seen + missed} partition states"
    )
    bad = [row for row in found.values() if row.result != "ok"]
    assert not bad, "\n".join(f"{row.point}: {row.result}" for row in bad)


def counted(
    stack: ExitStack, new_brokers: NewBrokers, scenario: Scenario
) -> tuple[Watched, Labels]:
    """A cluster, and what goes out when nobody is disturbed."""
    for attempt in range(1, ATTEMPTS + 1):
        cluster = stack.enter_context(watched(new_brokers))
        try:
            return cluster, undisturbed(cluster, scenario, COUNTED)
        except Disturbed:
            if attempt == ATTEMPTS:
                raise
    raise AssertionError


def crash_all(
    cluster: Watched | None,
    new_brokers: NewBrokers,
    scenario: Scenario,
    points: list[CrashPoint],
    labels: Labels,
    lanes: int,
) -> Rows:
    """In so many lanes, one of which begins with this cluster."""
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
    cluster: Watched | None,
    new_brokers: NewBrokers,
    scenario: Scenario,
    left: SimpleQueue[CrashPoint],
    labels: Labels,
) -> Rows:
    """One after the other on one cluster, as long as any are left. After a failure the next has a new one, so that each
    stands for itself."""
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


def crash_at(cluster: Watched, scenario: Scenario, point: CrashPoint, labels: Labels) -> Row:
    topic = f"{point.when}-{point.kind}-{point.number}"
    try:
        reached = progress(scenario, point, labels, COUNTED)
        return crash(cluster, scenario, point, topic, reached)
    except Exception as error:  # noqa: BLE001 - a row of the table, judged by the test
        return Row(
            registry=cluster.brokers.registry_name,
            scenario=scenario.name,
            point=str(point),
            result=f"{type(error).__name__}: {error}",
            says_nothing=isinstance(error, Disturbed),
        )


def summary(labels: Labels) -> str:
    """What goes out when nobody is disturbed."""
    writes = [str(len(label.split())) for kind, label in labels if kind is Kind.WRITE]
    names = Counter(label.split()[0] for kind, label in labels if kind is Kind.REQUEST)
    requests = ", ".join(f"{count} {name}" for name, count in sorted(names.items()))
    return f"undisturbed: {len(writes)} writes ({' and '.join(writes)} znodes), {requests}"
