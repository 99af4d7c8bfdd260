"""The scenarios as data: the operation, the victims, and the resulting leader epochs.

CONTROLLER   the controller at the start          REPLICA, OTHER   the other two brokers
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


class OperationKind(StrEnum):
    CREATE = "create"
    EXPAND = "expand"
    DELETE = "delete"
    REASSIGN = "reassign"
    CANCEL = "cancel"
    ELECT = "elect"
    CONFIGURE = "configure"
    SHUT_DOWN = "shut down"


class Progress(IntEnum):
    """The state of the registry at the time of the crash."""

    NOTHING = 0
    REQUESTED = 1
    """The topic, its new partitions or its marker are written."""
    STATES = 2
    """The states of its (new) partitions are written as well."""


C, R, O = Role.CONTROLLER, Role.REPLICA, Role.OTHER  # noqa: E741 - read as a table


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    operation_kind: OperationKind = OperationKind.CREATE
    assignment: tuple[tuple[Role, ...], ...]
    """The replicas of each partition, leader first. A topic to be expanded starts with the first partition."""
    origin: tuple[tuple[Role, ...], ...] = ()
    """The replicas before a reassignment or a change of the preferred leader."""
    victims: tuple[Role, ...]
    in_takeover: bool = False
    """The controller crashes right after writing the request. The points are those of its successor, which crashes as
    well."""


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
        operation_kind=OperationKind.EXPAND,
        assignment=((R, O, C), (C, R, O)),
        victims=(C,),
    ),
    Scenario(
        name="expand 1→2, replica",
        operation_kind=OperationKind.EXPAND,
        assignment=((C, R, O), (R, O, C)),
        victims=(R,),
    ),
    Scenario(
        name="delete, controller",
        operation_kind=OperationKind.DELETE,
        assignment=((C, R, O),),
        victims=(C,),
    ),
    Scenario(
        name="delete, replica",
        operation_kind=OperationKind.DELETE,
        assignment=((R, O, C),),
        victims=(R,),
    ),
    *(
        Scenario(
            name=f"reassign, {killed}",
            operation_kind=OperationKind.REASSIGN,
            origin=((R, O),),
            assignment=((O, C),),
            victims=victims,
        )
        for killed, victims in {"controller": (C,), "leader": (R,)}.items()
    ),
    Scenario(
        name="configure, controller",
        operation_kind=OperationKind.CONFIGURE,
        assignment=((R, O, C),),
        victims=(C,),
    ),
    Scenario(
        name="shut down, controller",
        operation_kind=OperationKind.SHUT_DOWN,
        assignment=((R, O, C),),
        victims=(C,),
    ),
    Scenario(
        name="elect, controller",
        operation_kind=OperationKind.ELECT,
        origin=((R, O, C),),
        assignment=((O, C, R),),
        victims=(C,),
    ),
)
MORE_SCENARIOS = (
    Scenario(
        name="reassign, both",
        operation_kind=OperationKind.REASSIGN,
        origin=((R, O),),
        assignment=((O, C),),
        victims=(C, R),
    ),
    Scenario(
        name="reassign, successor",
        operation_kind=OperationKind.REASSIGN,
        origin=((C, R, O),),
        assignment=((O, R),),
        victims=(C,),
        in_takeover=True,
    ),
    Scenario(
        name="cancel, controller",
        operation_kind=OperationKind.CANCEL,
        origin=((R, C),),
        assignment=((R, C),),
        victims=(C,),
    ),
    Scenario(
        name="shut down, follower",
        operation_kind=OperationKind.SHUT_DOWN,
        assignment=((R, O, C),),
        victims=(O,),
    ),
    Scenario(
        name="elect, leader",
        operation_kind=OperationKind.ELECT,
        origin=((R, O, C),),
        assignment=((O, C, R),),
        victims=(R,),
    ),
    Scenario(
        name="expand 1→2, both",
        operation_kind=OperationKind.EXPAND,
        assignment=((R, O, C), (C, R, O)),
        victims=(C, R),
    ),
    Scenario(
        name="delete, both",
        operation_kind=OperationKind.DELETE,
        assignment=((C, R, O),),
        victims=(C, R),
    ),
    Scenario(
        name="delete, successor",
        operation_kind=OperationKind.DELETE,
        assignment=((C, R, O),),
        victims=(C,),
        in_takeover=True,
    ),
)
"""Only run on the registry with shorter sessions, where a point takes a third of a second."""


REQUEST_WRITTEN = CrashPoint(When.AFTER, Kind.WRITE, 1)
ELECTED = CrashPoint(When.AFTER, Kind.WRITE, 0)


def crash_points(scenario: Scenario, labels: list[tuple[Kind, str]]) -> list[CrashPoint]:
    """Before and after each write, and after each request of an undisturbed run. The point before a request is the one
    after the previous write or request: the same requests have been sent. Only the first one needs its own."""
    points = [ELECTED] * scenario.in_takeover
    counts = dict.fromkeys(Kind, 0)
    for index, (kind, _) in enumerate(labels):
        counts[kind] += 1
        if kind is Kind.WRITE or index == 0:
            points.append(CrashPoint(When.BEFORE, kind, counts[kind]))
        points.append(CrashPoint(When.AFTER, kind, counts[kind]))
    return points


def progress(
    scenario: Scenario, point: CrashPoint, labels: list[tuple[Kind, str]], topic: str
) -> Progress:
    """The state of the registry at that point. Requests follow the writes that matter."""
    if scenario.in_takeover:
        return Progress.REQUESTED
    writes = [label for kind, label in labels if kind is Kind.WRITE]
    if point.kind is Kind.WRITE:
        writes = writes[: point.number if point.when is When.AFTER else point.number - 1]
    paths = " ".join(writes).split()
    if any(path.endswith("/state") for path in paths):
        return Progress.STATES
    request_paths = {znodes.topic_path(topic), znodes.delete_topic_path(topic)}
    return Progress.NOTHING if request_paths.isdisjoint(paths) else Progress.REQUESTED


def leader_epochs(
    scenario: Scenario,
    replicas: tuple[Role, ...],
    reached: Progress,
    *,
    created_after_detection: bool,
    successor: Role | None = None,
) -> set[int]:
    """The leader epochs that a partition may have after recovery. There are several if they depend on the session that
    expires first. `created_without_the_dead`: the writer of its first state knew of all failures."""
    leader, victims = replicas[0], scenario.victims
    if scenario.in_takeover:
        if created_after_detection:
            return {0}
        first = next(role for role in replicas if role is not C)
        return {2} if first is successor else {1}
    if victims == (R,):
        # The controller survives and finishes the creation before it detects a failure, unless the machine is slow.
        return {0} if created_after_detection else {1}
    if victims == (C,):
        if reached < Progress.STATES:
            return {0}
        return {2} if leader is C else {1}
    assert victims == (C, R), f"no expectation for a crash of {victims}"
    if reached is Progress.NOTHING:
        return {0}
    if reached is Progress.REQUESTED:
        # Depends on whether the new controller still counted the replica as alive.
        return {0} if created_after_detection else {1}
    return {C: {3}, R: {2, 3}, O: {2}}[leader]
