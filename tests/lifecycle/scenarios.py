"""The scenarios as data: what is done, who dies, and what the leader epochs then are.

CONTROLLER   in charge when it begins          REPLICA, OTHER   the two that are not
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from barnabas.metadata import znodes
from tests.lifecycle.trap import CrashPoint, Kind, When


class Role(StrEnum):
    CONTROLLER = "controller"
    REPLICA = "replica"
    OTHER = "other"


class Does(StrEnum):
    CREATE = "create"
    EXPAND = "expand"
    DELETE = "delete"


class Progress(IntEnum):
    """How far it had come in the registry when somebody died."""

    NOTHING = 0
    WISHED = 1
    """The topic, its new partitions or its marker stand there."""
    STATES = 2
    """And the states of its partitions, or of those that are new."""


C, R, O = Role.CONTROLLER, Role.REPLICA, Role.OTHER  # noqa: E741 - read as a table


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    does: Does = Does.CREATE
    assignment: tuple[tuple[Role, ...], ...]
    """Of each partition, the leader first. A topic that grows has only the first one before."""
    victims: tuple[Role, ...]
    in_takeover: bool = False
    """The controller dies when the wish is written and nothing else; the points are those of whoever takes over, and
    dies as well."""


ASSIGNMENTS = {
    "1 partition": ((C, R, O),),
    "3 partitions": ((C, R, O), (R, O, C), (O, C, R)),
}
VICTIMS = {"controller": (C,), "replica": (R,), "both": (C, R)}
SCENARIOS = (
    *(
        Scenario(name=f"{partitions}, {killed}", assignment=assignment, victims=victims)
        for partitions, assignment in ASSIGNMENTS.items()
        for killed, victims in VICTIMS.items()
    ),
    Scenario(
        name="3 partitions, successor",
        assignment=ASSIGNMENTS["3 partitions"],
        victims=(C,),
        in_takeover=True,
    ),
    Scenario(
        name="expand 1→2, controller",
        does=Does.EXPAND,
        assignment=((R, O, C), (C, R, O)),
        victims=(C,),
    ),
    Scenario(
        name="expand 1→2, replica",
        does=Does.EXPAND,
        assignment=((C, R, O), (R, O, C)),
        victims=(R,),
    ),
    Scenario(name="delete, controller", does=Does.DELETE, assignment=((C, R, O),), victims=(C,)),
    Scenario(name="delete, replica", does=Does.DELETE, assignment=((R, O, C),), victims=(R,)),
)
MORE_SCENARIOS = (
    Scenario(
        name="expand 1→2, both",
        does=Does.EXPAND,
        assignment=((R, O, C), (C, R, O)),
        victims=(C, R),
    ),
    Scenario(name="delete, both", does=Does.DELETE, assignment=((C, R, O),), victims=(C, R)),
    Scenario(
        name="delete, successor",
        does=Does.DELETE,
        assignment=((C, R, O),),
        victims=(C,),
        in_takeover=True,
    ),
)
"""On the registry with the shorter sessions alone, where a point costs a third of a second."""


WISH_WRITTEN = CrashPoint(When.AFTER, Kind.WRITE, 1)
ELECTED = CrashPoint(When.AFTER, Kind.WRITE, 0)


def crash_points(scenario: Scenario, labels: list[tuple[Kind, str]]) -> list[CrashPoint]:
    """Before and after each of what went out when nobody disturbed it."""
    numbers = {kind: sum(each is kind for each, _ in labels) for kind in Kind}
    return [ELECTED] * scenario.in_takeover + [
        CrashPoint(when, kind, number)
        for kind in Kind
        for number in range(1, numbers[kind] + 1)
        for when in When
    ]


def progress(
    scenario: Scenario, point: CrashPoint, labels: list[tuple[Kind, str]], topic: str
) -> Progress:
    """What stood in the registry at that point. Requests follow the writes that matter."""
    if scenario.in_takeover:
        return Progress.WISHED
    writes = [label for kind, label in labels if kind is Kind.WRITE]
    if point.kind is Kind.WRITE:
        writes = writes[: point.number if point.when is When.AFTER else point.number - 1]
    paths = " ".join(writes).split()
    if any(path.endswith("/state") for path in paths):
        return Progress.STATES
    wishes = {znodes.topic_path(topic), znodes.delete_topic_path(topic)}
    return Progress.NOTHING if wishes.isdisjoint(paths) else Progress.WISHED


def leader_epochs(
    scenario: Scenario,
    replicas: tuple[Role, ...],
    reached: Progress,
    *,
    created_without_the_dead: bool,
    successor: Role | None = None,
) -> set[int]:
    """What the leader epoch of one partition may be when all is well again; several where it depends on whose session
    times out first. `created_without_the_dead`: who wrote its first state had missed all the dead."""
    leader, victims = replicas[0], scenario.victims
    if scenario.in_takeover:
        if created_without_the_dead:
            return {0}
        first = next(role for role in replicas if role is not C)
        return {2} if first is successor else {1}
    if victims == (R,):
        # The controller lives, and finishes the creation before it misses anybody, unless the machine is very slow.
        return {0} if created_without_the_dead else {1}
    if victims == (C,):
        if reached < Progress.STATES:
            return {0}
        return {2} if leader is C else {1}
    assert victims == (C, R), f"nothing is known about the death of {victims}"
    if reached is Progress.NOTHING:
        return {0}
    if reached is Progress.WISHED:
        # Whether the new controller still counted the replica among the living.
        return {0} if created_without_the_dead else {1}
    return {C: {3}, R: {2, 3}, O: {2}}[leader]
