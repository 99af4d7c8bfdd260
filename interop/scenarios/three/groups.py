"""Groups on three brokers: coordinators, redirects of members, and the failure of a coordinator.

As in replication.py, steps that need stopped brokers are played at the matching points of broker_failures.py. Group
requests change no topic, so most steps do not record the whole cluster.
"""

from __future__ import annotations

from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.leave_group import MemberIdentity
from interop.scenarios.group_requests import (
    LONG_MS,
    by,
    commit,
    committed,
    delete_groups,
    describe_groups,
    forget,
    heartbeat,
    join,
    leave,
    list_groups,
    subscribed,
    sync,
)
from interop.scenarios.requests import create, delete
from interop.scenarios.step import Request
from interop.scenarios.three.step import Step
from interop.scenarios.three.topic_creation import ask, assigned

READ = "ring"
OF_ONE, OF_TWO, OF_THREE, ALSO_OF_THREE = GROUPS = ("alone-2", "alone-1", "alone-0", "alone-3")
"""Each is in its own partition: these, in this order, are their replicas."""
REPLICAS = ((1, 2, 3), (2, 3, 1), (3, 2, 1), (3, 1, 2))
FIRST_COORDINATOR = dict(zip(GROUPS, (replicas[0] for replicas in REPLICAS), strict=True))
JOINED = (OF_TWO, OF_THREE, ALSO_OF_THREE)
SETTINGS = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
RANGE = (("range", subscribed(READ)),)
STRANGER = "raw-00000000-0000-4000-8000-00000000beef"
HERE = {READ: {0: 5}}


def quick(
    name: str,
    request: Request,
    broker: int,
    *,
    version: int | None = None,
    until: tuple[str, object] | None = None,
) -> Step:
    return ask(f"groups, {name}", request, broker, version=version, until=until, is_recorded=False)


def found(when: str, *brokers: int) -> tuple[Step, ...]:
    return tuple(
        quick(
            f"coordinators as broker {broker} knows them {when}",
            FindCoordinatorRequest(coordinator_keys=GROUPS),
            broker,
        )
        for broker in brokers
    )


def read(when: str, group: str, broker: int) -> Step:
    """The committed offsets, as soon as the coordinator has loaded them."""
    return quick(
        f"offsets of {group} {when}",
        committed(group),
        broker,
        until=(f"groups.{group}.error_code", "NONE"),
    )


def written(
    when: str, group: str, broker: int, offset: int, *, error: str = "NONE", simple: bool = True
) -> Step:
    """A commit of its member, or without a member."""
    request: Request = commit(group, {READ: {0: offset}})
    if not simple:
        request = by(
            join_step(group),
            lambda me: commit(group, {READ: {1: offset}}, generation=1, member=me),
        )
    partition = 0 if simple else 1
    return quick(
        f"commit of {'nobody' if simple else 'a member'} to {group} {when}",
        request,
        broker,
        until=(f"topics.{READ}.partitions.{partition}.error_code", error),
    )


def join_step(group: str) -> str:
    """The name of the step in which its member joined."""
    return f"three brokers: groups, {group} is joined"


def member(group: str, broker: int) -> tuple[Step, ...]:
    return (
        quick(
            f"{group} is joined",
            join(group, session_ms=2 * LONG_MS, protocols=RANGE),
            broker,
            version=3,
        ),
        quick(
            f"{group} is shared",
            by(join_step(group), lambda me: sync(group, 1, me, {me: b"all"})),
            broker,
        ),
    )


def beats(when: str, group: str, broker: int) -> Step:
    return quick(
        f"heartbeat of {group} {when}",
        by(join_step(group), lambda me: heartbeat(group, 1, me)),
        broker,
    )


def seen(when: str, broker: int) -> tuple[Step, ...]:
    return (
        quick(f"described by broker {broker} {when}", describe_groups(*GROUPS), broker),
        quick(f"listed by broker {broker} {when}", list_groups(), broker),
    )


ELSEWHERE: dict[str, Request] = {
    "commit": commit(OF_THREE, HERE),
    "offsets": committed(OF_THREE),
    "join": join(OF_THREE),
    "sync": sync(OF_THREE, 1, STRANGER),
    "heartbeat": heartbeat(OF_THREE, 1, STRANGER),
    "leave": leave(OF_THREE, MemberIdentity(STRANGER)),
    "delete": delete_groups(OF_THREE),
    "delete offsets": forget(OF_THREE, {READ: (0,)}),
}

AT_FIRST: tuple[Step, ...] = (
    ask("groups, their topic", create(assigned(CONSUMER_OFFSETS, *REPLICAS, **SETTINGS))),
    *found("at first", 1, 2, 3),
    *(read("at first", group, broker) for group, broker in FIRST_COORDINATOR.items()),
    *(written("at first", group, broker, 1) for group, broker in FIRST_COORDINATOR.items()),
    *(
        quick(f"asked of who does not coordinate: {what}", request, 1)
        for what, request in ELSEWHERE.items()
    ),
    *(
        quick(
            f"offsets of who does not coordinate, version {version}",
            committed(OF_THREE, of={READ: (0,)}, version=version),
            1,
            version=version,
        )
        for version in (2, 7)
    ),
    *(step for group in JOINED for step in member(group, FIRST_COORDINATOR[group])),
    *(written("at first", group, FIRST_COORDINATOR[group], 2, simple=False) for group in JOINED),
    *(step for broker in (1, 2, 3) for step in seen("at first", broker)),
)

NEXT = {OF_TWO: 2, OF_THREE: 2, ALSO_OF_THREE: 1}
WITHOUT_3: tuple[Step, ...] = (
    *found("without 3", 1, 2),
    *(read("without 3", group, broker) for group, broker in NEXT.items()),
    *seen("without 3", 1),
    *seen("without 3", 2),
    *(beats("without 3", group, broker) for group, broker in NEXT.items()),
    *(written("without 3", group, broker, 3, simple=False) for group, broker in NEXT.items()),
)

WITH_3_AGAIN: tuple[Step, ...] = (
    *found("with 3 again", 1, 2, 3),
    beats("of its first coordinator", OF_THREE, 3),
    *seen("with 3 again", 2),
    *seen("with 3 again", 3),
)

AFTER_2_WAS_KILLED: tuple[Step, ...] = (
    *found("after 2 was killed", 1, 3),
    *(read("after 2 was killed", group, 3) for group in (OF_TWO, OF_THREE)),
    *seen("after 2 was killed", 3),
    *(beats("after 2 was killed", group, 3) for group in (OF_TWO, OF_THREE)),
    written("after 2 was killed", OF_THREE, 3, 4, simple=False),
    quick(
        "a member leaves after 2 was killed",
        by(join_step(OF_TWO), lambda me: leave(OF_TWO, MemberIdentity(me))),
        3,
    ),
    written("after its member has left", OF_TWO, 3, 5),
    quick("deleted after 2 was killed", delete_groups(OF_ONE, OF_TWO, OF_THREE), 3),
)

# One replica is in sync, but two are required: groups can be read, not written.
NEW = "moved"
WITH_2_ALONE: tuple[Step, ...] = (
    *found("with 2 alone", 2),
    *(read("with 2 alone", group, 2) for group in GROUPS),
    *seen("with 2 alone", 2),
    beats("with 2 alone", OF_THREE, 2),
    written("with 2 alone", OF_THREE, 2, 6, error="COORDINATOR_NOT_AVAILABLE", simple=False),
    written("with 2 alone", OF_ONE, 2, 6, error="COORDINATOR_NOT_AVAILABLE"),
    quick("a new one is joined with 2 alone", join(NEW, protocols=RANGE), 2, version=3),
    quick(
        "a new one is shared with 2 alone",
        by(
            "three brokers: groups, a new one is joined with 2 alone",
            lambda me: sync(NEW, 1, me, {me: b"all"}),
        ),
        2,
    ),
    quick("described a new one with 2 alone", describe_groups(NEW), 2),
    quick("delete offsets with 2 alone", forget(OF_ONE, {READ: (0,)}), 2),
    quick("delete a group with 2 alone", delete_groups(OF_ONE), 2),
    quick("what is left with 2 alone", committed(*GROUPS, NEW), 2),
)

DELETED: tuple[Step, ...] = (
    ask("groups, their topic is deleted", delete(CONSUMER_OFFSETS), 2),
    *(
        quick(f"none are left on broker {broker}", list_groups(), broker, until=("groups.count", 0))
        for broker in (1, 2, 3)
    ),
    beats("when the topic is gone", OF_THREE, 3),
)
