"""One crash: an operation starts, brokers crash during it, and the cluster must recover.

Among the survivors, the requested change is complete or in progress, as defined in operations.py. If the request never
reached the registry, there is no trace of it and it can be repeated. After the restart, all replicas are in sync and
brokers report the registry's state. Replayed requests of the crashed controller have no effect.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from barnabas.model import BrokerId
from tests.lifecycle.client import create, eventually
from tests.lifecycle.operations import OPERATIONS, Run
from tests.lifecycle.scenarios import REQUEST_WRITTEN, Progress, Role, Scenario
from tests.lifecycle.trap import CrashPoint, Kind
from tests.lifecycle.watched import DEADLINE_S, DONE, NOT_CONTROLLER, WatchedCluster

EARLIER = "earlier"


class DisturbedError(Exception):
    """Another broker failed or lost its session because the machine was too slow: the result is inconclusive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table."""

    registry: str
    scenario: str
    point: str
    client: str = ""
    found: str = ""
    survived_s: float = 0.0
    recovered_s: float = 0.0
    epochs: str = ""
    replayed: str = ""
    result: str = "ok"
    is_inconclusive: bool = False


def run_undisturbed(
    cluster: WatchedCluster, scenario: Scenario, topic: str
) -> list[tuple[Kind, str]]:
    """Run without a crash, or in a takeover without a second one; returns the writes and requests sent."""
    reached = Progress.REQUESTED if scenario.in_takeover else Progress.NOTHING
    run = begin(cluster, scenario, topic, reached)
    with check_bystanders(cluster, run):
        return count(cluster, run)


def count(cluster: WatchedCluster, run: Run) -> list[tuple[Kind, str]]:
    scenario = run.scenario
    operation = OPERATIONS[scenario.operation_kind]
    controller = run.roles[Role.CONTROLLER]
    operation.prepare(cluster, run)
    if scenario.in_takeover:
        request_and_crash(cluster, run, None)
        run.survivors = sorted(cluster.brokers.alive())
        cluster.wait_until_missed(run.survivors)
        operation.survive(cluster, run)
        labels = cluster.brokers.labels(cluster.controller())
        restart_crashed(cluster, run)
        operation.recover(cluster, run)
    else:
        cluster.brokers.arm(controller, None, [])
        answer = operation.request(cluster.brokers.address(controller), run)
        assert answer == DONE, answer
        operation.finish(cluster, run)
        labels = cluster.brokers.labels(controller)
        operation.recover(cluster, run)
    cluster.wait_until_agreed()  # the last UpdateMetadata follows the last write
    epochs = cluster.check_states(run.topic, len(run.assignment))
    assert scenario.in_takeover or set(epochs) == operation.undisturbed_epochs, epochs
    return labels


def begin(cluster: WatchedCluster, scenario: Scenario, topic: str, reached: Progress) -> Run:
    roles = cluster.roles()
    return Run(
        scenario=scenario,
        topic=topic,
        roles=roles,
        assignment=[[roles[role] for role in replicas] for replicas in scenario.assignment],
        reached=reached,
    )


@contextmanager
def check_bystanders(cluster: WatchedCluster, run: Run) -> Iterator[None]:
    """Raise DisturbedError if any broker failed other than those meant to, or if one failed twice."""
    lives = cluster.observer.broker_epochs()

    def find_disturbed() -> list[BrokerId]:
        away = [each for each in run.dead if each not in run.returned]
        return cluster.failed_bystanders(lives | run.returned, away)

    try:
        yield
    except Exception as error:
        if found := find_disturbed():
            raise DisturbedError(f"{found} failed as well; then: {error}") from error
        raise
    if found := find_disturbed():
        raise DisturbedError(f"{found} failed as well")


def restart_crashed(cluster: WatchedCluster, run: Run) -> None:
    """Restart the crashed brokers. A second failure is unintended: the session was too short for the machine."""
    cluster.brokers.restart(run.dead)
    lives = cluster.observer.broker_epochs()
    run.returned = {each: lives.get(each, -1) for each in run.dead}


def request_and_crash(cluster: WatchedCluster, run: Run, point: CrashPoint | None) -> str:
    """Send the request and let it be interrupted; returns the client's result."""
    scenario, brokers = run.scenario, cluster.brokers
    controller = run.roles[Role.CONTROLLER]
    victims = [run.roles[role] for role in scenario.victims]
    successors = [each for each in run.roles.values() if each != controller]
    if scenario.in_takeover:
        create_earlier_topic(cluster, run)
        for candidate in successors:
            brokers.arm(candidate, point, [candidate], from_election=True)
    brokers.arm(controller, REQUEST_WRITTEN if scenario.in_takeover else point, victims)
    answer = OPERATIONS[scenario.operation_kind].request(brokers.address(controller), run)
    assert answer != NOT_CONTROLLER, (
        f"broker {controller} is no longer controller, and will not crash"
    )
    brokers.wait_for_death(victims)
    run.dead += victims
    if scenario.in_takeover and point is not None:
        eventually(
            lambda: bool(brokers.dead(successors)), lambda: "the successor crashes", DEADLINE_S
        )
        successor = brokers.dead(successors)[0]
        (last,) = set(successors) - {successor}
        brokers.arm(last, None, [])  # no broker is left to take over from it
        brokers.wait_for_death([successor])
        run.dead.append(successor)
    return answer


def create_earlier_topic(cluster: WatchedCluster, run: Run) -> None:
    """Create a topic for the successor to take over. Each broker leads a partition of it, so that every run is alike:
    earlier topics may be led by the victims alone, and the successor then sends fewer requests."""
    name = f"{EARLIER}-{run.topic}"
    one, two, three = run.roles.values()
    assignment = [[one, two, three], [two, three, one], [three, one, two]]
    answer = cluster.ask(create, name, assignment)
    assert answer == DONE, answer
    cluster.wait_until_healthy(name, assignment)


def crash(
    cluster: WatchedCluster, scenario: Scenario, point: CrashPoint, topic: str, reached: Progress
) -> Row:
    run = begin(cluster, scenario, topic, reached)
    with check_bystanders(cluster, run):
        return run_crash(cluster, run, point)


def run_crash(cluster: WatchedCluster, run: Run, point: CrashPoint) -> Row:
    operation = OPERATIONS[run.scenario.operation_kind]
    operation.prepare(cluster, run)
    cluster.check_requests()
    answer = request_and_crash(cluster, run, point)
    died = time.monotonic()

    run.survivors = sorted(cluster.brokers.alive())
    cluster.wait_until_missed(run.survivors)
    found = operation.survive(cluster, run)
    survived_s = time.monotonic() - died
    names = {broker: role for role, broker in run.roles.items()}
    run.successor = names[run.dead[-1]]
    allowed = operation.allowed_epochs(cluster, run)

    back = time.monotonic()
    restart_crashed(cluster, run)
    operation.recover(cluster, run)
    recovered_s = time.monotonic() - back
    replayed = cluster.replay_stale_requests(cluster.check_requests())
    epochs = cluster.check_states(run.topic, len(run.assignment))
    for index, epoch in enumerate(epochs):
        assert epoch in allowed[index], f"leader epoch {epoch} of {index}, not {allowed[index]}"
    assert not cluster.invariants.broken, "; ".join(cluster.invariants.broken)
    return Row(
        registry=cluster.brokers.registry_name,
        scenario=run.scenario.name,
        point=str(point),
        client=answer,
        found=found,
        survived_s=survived_s,
        recovered_s=recovered_s,
        epochs=",".join(map(str, epochs)),
        replayed=replayed,
    )
