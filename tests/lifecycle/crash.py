"""One crash: something is begun, somebody dies in the middle of it, and everything must be well again.

Well means, among those who live: what was wished is done or under way, as operations.py has it; or, if the wish never
came to stand in the registry, there is no trace of it and it can be told again. When the dead are back: all replicas
are in sync, and what brokers tell clients is what the registry says. And a dead controller's requests, sent once more,
move nobody.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from barnabas.model import BrokerId
from tests.lifecycle.client import create, eventually
from tests.lifecycle.operations import OPERATIONS, Run
from tests.lifecycle.scenarios import WISH_WRITTEN, Progress, Role, Scenario
from tests.lifecycle.trap import CrashPoint, Kind
from tests.lifecycle.watched import DEADLINE_S, DONE, NOT_CONTROLLER, Watched

EARLIER = "earlier"


class Disturbed(Exception):
    """Somebody else died, or lost a session, as the machine was too slow: what was found says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

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
    says_nothing: bool = False


def undisturbed(cluster: Watched, scenario: Scenario, topic: str) -> list[tuple[Kind, str]]:
    """Nobody dies, or in a takeover nobody else does: what went out."""
    reached = Progress.WISHED if scenario.in_takeover else Progress.NOTHING
    run = begin(cluster, scenario, topic, reached)
    with undisturbed_bystanders(cluster, run):
        return count(cluster, run)


def count(cluster: Watched, run: Run) -> list[tuple[Kind, str]]:
    scenario = run.scenario
    operation = OPERATIONS[scenario.does]
    controller = run.roles[Role.CONTROLLER]
    operation.prepare(cluster, run)
    if scenario.in_takeover:
        let_die(cluster, run, None)
        run.survivors = sorted(cluster.brokers.alive())
        cluster.wait_until_missed(run.survivors)
        operation.survive(cluster, run)
        labels = cluster.brokers.labels(cluster.controller())
        bring_back(cluster, run)
        operation.recover(cluster, run)
    else:
        cluster.brokers.arm(controller, None, [])
        answer = operation.wish(cluster.brokers.address(controller), run)
        assert answer == DONE, answer
        operation.finish(cluster, run)
        labels = cluster.brokers.labels(controller)
        operation.recover(cluster, run)
    assert set(cluster.check_states(run.topic, len(run.assignment))) == {0}
    return labels


def begin(cluster: Watched, scenario: Scenario, topic: str, reached: Progress) -> Run:
    roles = cluster.roles()
    return Run(
        scenario=scenario,
        topic=topic,
        roles=roles,
        assignment=[[roles[role] for role in replicas] for replicas in scenario.assignment],
        reached=reached,
    )


@contextmanager
def undisturbed_bystanders(cluster: Watched, run: Run) -> Iterator[None]:
    """Whatever came of it counts only if nobody was struck but those who died as they should, and they once."""
    lives = cluster.observer.broker_epochs()

    def struck() -> list[BrokerId]:
        away = [each for each in run.dead if each not in run.returned]
        return cluster.struck_bystanders(lives | run.returned, away)

    try:
        yield
    except Exception as error:
        if found := struck():
            raise Disturbed(f"{found} were struck, too; and then: {error}") from error
        raise
    if found := struck():
        raise Disturbed(f"{found} were struck, too")


def bring_back(cluster: Watched, run: Run) -> None:
    """Who dies a second time did not mean to: its session was too short for the machine."""
    cluster.brokers.restart(run.dead)
    lives = cluster.observer.broker_epochs()
    run.returned = {each: lives.get(each, -1) for each in run.dead}


def let_die(cluster: Watched, run: Run, point: CrashPoint | None) -> str:
    """Tell the wish and see it interrupted: what the client heard."""
    scenario, brokers = run.scenario, cluster.brokers
    controller = run.roles[Role.CONTROLLER]
    victims = [run.roles[role] for role in scenario.victims]
    heirs = [each for each in run.roles.values() if each != controller]
    if scenario.in_takeover:
        have_an_earlier_topic(cluster, run)
        for heir in heirs:
            brokers.arm(heir, point, [heir], from_election=True)
    brokers.arm(controller, WISH_WRITTEN if scenario.in_takeover else point, victims)
    answer = OPERATIONS[scenario.does].wish(brokers.address(controller), run)
    assert answer != NOT_CONTROLLER, f"broker {controller} is in charge no more, and will not die"
    brokers.wait_for_death(victims)
    run.dead += victims
    if scenario.in_takeover and point is not None:
        eventually(lambda: bool(brokers.dead(heirs)), lambda: "an heir dies", DEADLINE_S)
        successor = brokers.dead(heirs)[0]
        (last,) = set(heirs) - {successor}
        brokers.arm(last, None, [])  # nobody is left to take over from it
        brokers.wait_for_death([successor])
        run.dead.append(successor)
    return answer


def have_an_earlier_topic(cluster: Watched, run: Run) -> None:
    """For a successor to take over: each of them leads a part of it, as each time. Of what came before everything may
    be led by who is about to die, and the successor has less to say then."""
    name = f"{EARLIER}-{run.topic}"
    one, two, three = run.roles.values()
    assignment = [[one, two, three], [two, three, one], [three, one, two]]
    answer = cluster.ask(create, name, assignment)
    assert answer == DONE, answer
    cluster.wait_until_healthy(name, assignment)


def crash(
    cluster: Watched, scenario: Scenario, point: CrashPoint, topic: str, reached: Progress
) -> Row:
    run = begin(cluster, scenario, topic, reached)
    with undisturbed_bystanders(cluster, run):
        return strike(cluster, run, point)


def strike(cluster: Watched, run: Run, point: CrashPoint) -> Row:
    operation = OPERATIONS[run.scenario.does]
    operation.prepare(cluster, run)
    cluster.listen()
    answer = let_die(cluster, run, point)
    died = time.monotonic()

    run.survivors = sorted(cluster.brokers.alive())
    cluster.wait_until_missed(run.survivors)
    found = operation.survive(cluster, run)
    survived_s = time.monotonic() - died
    names = {broker: role for role, broker in run.roles.items()}
    run.successor = names[run.dead[-1]]
    allowed = operation.allowed_epochs(cluster, run)

    back = time.monotonic()
    bring_back(cluster, run)
    operation.recover(cluster, run)
    recovered_s = time.monotonic() - back
    replayed = cluster.replay_what_is_stale(cluster.listen())
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
