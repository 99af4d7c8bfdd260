"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the life of a group, and unknown members."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.wire.apis import APIS
from barnabas.wire.codec import Message
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.join_group import JoinGroupRequest
from barnabas.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.sync_group import SyncGroupRequest
from interop.scenarios.group_requests import (
    OTHER_TOPIC,
    RANGE,
    STICKY,
    TOPIC,
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
from interop.scenarios.requests import ask, create, new_topic
from interop.scenarios.step import Await, Begin, End, Request, RequestContext, Step

JOINS = APIS[JoinGroupRequest.API_KEY].versions
SYNCS = APIS[SyncGroupRequest.API_KEY].versions
HEARTBEATS = APIS[HeartbeatRequest.API_KEY].versions
LEAVES = APIS[LeaveGroupRequest.API_KEY].versions
ID_FIRST_SINCE = 4
STATIC_SINCE = 5
STRANGER = "raw-00000000-0000-4000-8000-00000000beef"


def begin(name: str, request: Request, version: int | None = None) -> Step:
    return Step(name=name, action=Begin(request=request, version=version))


def end(name: str, step: str) -> Step:
    return Step(name=name, action=End(step=step))


def until(name: str, request: Request, path: str, value: object) -> Step:
    return Step(name=name, action=Await(request=request, path=path, value=value))


def joins_again(version: int) -> Request:
    given_at = f"join: without an id, version {version}"
    return by(given_at, lambda me: join(f"new-{version}", me))


SETUP = (
    ask("groups: topics", create(new_topic(TOPIC, 3), new_topic(OTHER_TOPIC))),
    ask("groups: none are listed", list_groups()),
)

NEWCOMERS = (
    *(
        ask(f"join: without an id, version {version}", join(f"new-{version}"), version)
        for version in JOINS
    ),
    *(
        ask(
            f"join: with the id that was given, version {version}",
            joins_again(version),
            version,
        )
        for version in JOINS
        if version >= ID_FIRST_SINCE
    ),
    ask("join: no group", join("")),
    *(
        ask(f"join: a session of {ms} ms", join("short", session_ms=ms))
        for ms in (-1, 0, 5_999, 6_000, 1_800_000, 1_800_001)
    ),
    ask("join: an unknown id in a group nobody knows", join("nowhere", STRANGER)),
    ask("join: an unknown id", join("new-9", STRANGER)),
    ask("join: an unknown id, version 3", join("new-3", STRANGER), 3),
    ask("join: an instance nobody knows, with an id", join("new-9", STRANGER, instance="i")),
    ask("join: no protocols", join("unusual", protocols=())),
    ask("join: no type of protocol", join("unusual", kind="")),
    ask("join: no protocols, version 0", join("unusual", protocols=()), 0),
    ask("join: no type of protocol, version 0", join("unusual", kind=""), 0),
    ask("join: another type", join("new-9", kind="connect")),
    ask("join: a protocol the others do not know", join("new-9", protocols=(STICKY,))),
    ask("join: one that they know", join("new-9", protocols=(STICKY, RANGE))),
    ask("join: no protocols where there are members", join("new-9", protocols=())),
    ask(
        "join: with an instance after an id",
        by("join: one that they know", lambda me: join("new-9", me, instance="late")),
    ),
)

# ---- one group from its first to its last member

G = "shared"
FIRST = "group: the first comes"
SECOND = "group: a second comes"
THIRD = "group: a third comes while members join"


def first_beats(generation: int) -> Request:
    return by(FIRST, lambda me: heartbeat(G, generation, me))


def first_commits(generation: int) -> Request:
    return by(FIRST, lambda me: commit(G, {TOPIC: {0: 5}}, generation=generation, member=me))


def first_syncs(
    generation: int,
    kind: str | None = "consumer",
    protocol: str | None = "range",
    instance: str | None = None,
) -> Request:
    return by(
        FIRST,
        lambda me: sync(G, generation, me, kind=kind, protocol=protocol, instance=instance),
    )


def assigned(generation: int, *steps: str) -> Request:
    """A SyncGroup of the group leader that assigns to each member the name of the step in which it joined."""

    def request(context: RequestContext) -> Message:
        ids = {context.answer(step).member_id: step.encode() for step in steps}
        return sync(G, generation, next(iter(ids)), ids)

    return request


def seen(when: str) -> tuple[Step, ...]:
    return (
        ask(f"group: described {when}", describe_groups(G)),
        ask(f"group: listed {when}", list_groups()),
    )


LIFE = (
    ask(FIRST, join(G)),
    *seen("before its first has joined"),
    ask("group: the first has joined", by(FIRST, lambda me: join(G, me))),
    *seen("while its leader assigns"),
    ask("group: the first joins again at once", by(FIRST, lambda me: join(G, me))),
    ask("group: heartbeat before the assignment", first_beats(1)),
    ask("group: commit before the assignment", first_commits(1)),
    ask("sync: a generation to come", first_syncs(2)),
    ask("sync: a generation gone by", first_syncs(0)),
    ask("sync: another type", first_syncs(1, kind="connect")),
    ask("sync: another protocol", first_syncs(1, protocol="sticky")),
    ask("sync: no type", first_syncs(1, kind=None)),
    ask("sync: no protocol", first_syncs(1, protocol=None)),
    ask("sync: with an instance", first_syncs(1, instance="i")),
    *(
        ask(f"sync: a stranger, version {version}", sync(G, 1, STRANGER), version)
        for version in SYNCS
    ),
    ask("sync: of no group", sync("", 1, STRANGER)),
    ask("sync: of a group nobody knows", sync("nowhere", 1, STRANGER)),
    ask("sync: the assignment", assigned(1, FIRST)),
    *(ask(f"sync: again, version {version}", first_syncs(1), version) for version in SYNCS),
    *seen("with one member"),
    *(ask(f"heartbeat: version {version}", first_beats(1), version) for version in HEARTBEATS),
    ask("heartbeat: a generation to come", first_beats(2)),
    ask("heartbeat: a generation gone by", first_beats(0)),
    *(
        ask(f"heartbeat: a stranger, version {version}", heartbeat(G, 1, STRANGER), version)
        for version in HEARTBEATS
    ),
    ask("heartbeat: with an instance", by(FIRST, lambda me: heartbeat(G, 1, me, "i"))),
    ask("heartbeat: without an id", heartbeat(G, 1, "")),
    ask("heartbeat: of no group", heartbeat("", 1, STRANGER)),
    ask("heartbeat: of a group nobody knows", heartbeat("nowhere", 1, STRANGER)),
    # A second member joins: a rebalance starts.
    ask(SECOND, join(G, protocols=(STICKY, RANGE))),
    *seen("while a second has only its id"),
    begin(
        "group: the second joins",
        by(SECOND, lambda me: join(G, me, protocols=(STICKY, RANGE))),
    ),
    until(
        "group: the first is called",
        first_beats(1),
        "error_code",
        "REBALANCE_IN_PROGRESS",
    ),
    *seen("while members join"),
    ask(THIRD, join(G)),
    ask("group: the third leaves", by(THIRD, lambda me: leave(G, MemberIdentity(me)))),
    ask("group: sync while members join", first_syncs(1)),
    ask("group: commit while members join", first_commits(1)),
    ask(
        "group: the first joins again", by(FIRST, lambda me: join(G, me, protocols=(RANGE, STICKY)))
    ),
    end("group: the second has joined", "group: the second joins"),
    ask("group: commit in a generation gone by", first_commits(1)),
    ask(
        "group: a follower joins again at once",
        by(SECOND, lambda me: join(G, me, protocols=(STICKY, RANGE))),
    ),
    begin("group: the second waits", by(SECOND, lambda me: sync(G, 2, me))),
    ask("group: the first assigns", assigned(2, FIRST, SECOND)),
    end("group: the second is assigned", "group: the second waits"),
    *seen("with two members"),
    ask(
        "group: a follower joins again, and knows nothing new",
        by(SECOND, lambda me: join(G, me, protocols=(STICKY, RANGE))),
    ),
    ask("group: one more than fits", join(G)),
    ask("group: one more than fits, version 3", join(G), 3),
    *seen("when it is full"),
    ask("group: a member of it commits", first_commits(2)),
    ask("group: who is no member commits", commit(G, {TOPIC: {0: 1}})),
    ask("group: a stranger commits", commit(G, {TOPIC: {0: 1}}, generation=2, member=STRANGER)),
    ask(
        "group: a member without a generation commits",
        by(FIRST, lambda me: commit(G, {TOPIC: {0: 1}}, member=me)),
    ),
    ask("group: what is committed", committed(G)),
    ask("group: offsets of what it reads are deleted", forget(G, {TOPIC: (0,)})),
    ask(
        "group: offsets of what it does not read are deleted",
        forget(G, {OTHER_TOPIC: (0,), TOPIC: (0, 9), "nobody": (0,)}),
    ),
    ask("group: it is deleted while it has members", delete_groups(G)),
    # Members leave.
    *(
        ask(
            f"leave: a stranger, version {version}",
            leave(G, MemberIdentity(STRANGER), version=version),
            version,
        )
        for version in LEAVES
    ),
    ask("leave: an instance nobody knows", leave(G, MemberIdentity("", "i"))),
    ask("leave: nobody", leave(G)),
    ask("leave: without an id, version 0", leave(G, MemberIdentity(""), version=0), 0),
    ask("leave: of no group", leave("", MemberIdentity(STRANGER))),
    ask("leave: of no group, version 2", leave("", MemberIdentity(STRANGER), version=2), 2),
    ask("leave: of a group nobody knows", leave("nowhere", MemberIdentity(STRANGER))),
    ask(
        "leave: of a group nobody knows, version 1",
        leave("nowhere", MemberIdentity(STRANGER), version=1),
        1,
    ),
    ask("leave: with an instance", by(FIRST, lambda me: leave(G, MemberIdentity(me, "i")))),
    ask(
        "leave: the second",
        by(SECOND, lambda me: leave(G, MemberIdentity(me), MemberIdentity(STRANGER))),
    ),
    ask("leave: the first is called", first_beats(2)),
    ask("leave: the first joins", by(FIRST, lambda me: join(G, me))),
    ask(
        "leave: the first, twice",
        by(FIRST, lambda me: leave(G, MemberIdentity(me), MemberIdentity(me))),
    ),
    until("group: empty", describe_groups(G), f"groups.{G}.group_state", "Empty"),
    *seen("when it is empty"),
    ask("leave: after all", by(FIRST, lambda me: leave(G, MemberIdentity(me)))),
    ask("group: heartbeat when it is empty", first_beats(3)),
    ask("group: sync when it is empty", first_syncs(3)),
    ask("group: join with the old id", by(FIRST, lambda me: join(G, me))),
)

# ---- static members

S = "static"
WAS = "static: an instance comes"
IS = "static: it comes back"
FORMER: dict[str, Callable[[str], Message]] = {
    "heartbeat": lambda me: heartbeat(S, 1, me, "i"),
    "heartbeat without the instance": lambda me: heartbeat(S, 1, me),
    "sync": lambda me: sync(S, 1, me, instance="i"),
    "join": lambda me: join(S, me, instance="i"),
    "commit": lambda me: commit(S, {TOPIC: {0: 1}}, generation=1, member=me, instance="i"),
    "leave": lambda me: leave(S, MemberIdentity(me, "i")),
}
STATIC = (
    ask(WAS, join(S, instance="i")),
    ask("static: it is assigned", by(WAS, lambda me: sync(S, 1, me, {me: b"mine"}, instance="i"))),
    ask("static: described", describe_groups(S)),
    ask(IS, join(S, instance="i")),
    ask("static: it goes on", by(IS, lambda me: sync(S, 1, me, instance="i"))),
    ask("static: its heartbeat", by(IS, lambda me: heartbeat(S, 1, me, "i"))),
    ask("static: its heartbeat without the instance", by(IS, lambda me: heartbeat(S, 1, me))),
    ask(
        "static: it commits",
        by(IS, lambda me: commit(S, {TOPIC: {0: 9}}, generation=1, member=me, instance="i")),
    ),
    *(ask(f"static: its former self, {what}", by(WAS, asks)) for what, asks in FORMER.items()),
    *(
        ask(f"static: it comes back, version {version}", join(S, instance="i"), version)
        for version in JOINS
        if version >= STATIC_SINCE
    ),
    ask(
        "static: it comes back with a new protocol",
        join(S, instance="i", protocols=(STICKY, RANGE)),
    ),
    ask("static: described while it assigns", describe_groups(S)),
    ask("static: it comes back while it assigns", join(S, instance="i", protocols=(STICKY, RANGE))),
    ask(
        "static: an operator removes it", leave(S, MemberIdentity("", "i"), MemberIdentity("", "j"))
    ),
    until("static: empty", describe_groups(S), f"groups.{S}.group_state", "Empty"),
)

# ---- groups other than consumer groups, and groups after a restart

C = "connectors"
STAYS = "stays"
OTHERS = (
    ask("connect: joins", join(C, kind="connect", protocols=(("eager", b"e"),)), 3),
    ask(
        "connect: is assigned",
        by(
            "connect: joins",
            lambda me: sync(C, 1, me, {me: b"work"}, kind="connect", protocol="eager"),
        ),
    ),
    ask("connect: described", describe_groups(C)),
    ask("connect: offsets are deleted", forget(C, {TOPIC: (0,)})),
    ask("stays: joins", join(STAYS, protocols=(("range", subscribed(TOPIC, OTHER_TOPIC)),)), 3),
    ask("stays: is assigned", by("stays: joins", lambda me: sync(STAYS, 1, me, {me: b"all"}))),
    ask(
        "stays: commits",
        by(
            "stays: joins",
            lambda me: commit(STAYS, {TOPIC: {0: 1, 2: 3}}, generation=1, member=me, note="n"),
        ),
    ),
)

# ---- a member without heartbeats

MUTE = "mute: joins"
SHORT_MS = 6_000
FALLS_SILENT = (
    ask(MUTE, join("mute", session_ms=SHORT_MS), 3),
    ask("mute: is assigned", by(MUTE, lambda me: sync("mute", 1, me, {me: b"all"}))),
    ask(
        "mute: commits",
        by(MUTE, lambda me: commit("mute", {TOPIC: {0: 1}}, generation=1, member=me)),
    ),
)
MISSED = (
    until("mute: is missed", describe_groups("mute"), "groups.mute.group_state", "Empty"),
    ask("mute: is told", by(MUTE, lambda me: heartbeat("mute", 1, me))),
    ask("mute: joins again", by(MUTE, lambda me: join("mute", me))),
    ask("mute: what it has committed", committed("mute")),
)

STEPS: tuple[Step, ...] = (*SETUP, *NEWCOMERS, *LIFE, *STATIC, *OTHERS)

AFTER_RESTART: tuple[Step, ...] = (
    ask("restarted groups: described", describe_groups(STAYS, C, G, S, "new-3", "new-9")),
    ask("restarted groups: listed", list_groups()),
    ask("restarted groups: heartbeat", by("stays: joins", lambda me: heartbeat(STAYS, 1, me))),
    ask("restarted groups: sync", by("stays: joins", lambda me: sync(STAYS, 1, me))),
    ask("restarted groups: what is committed", committed(STAYS, G, C)),
    ask(
        "restarted groups: of one that was never assigned",
        by("join: without an id, version 3", lambda me: heartbeat("new-3", 1, me)),
    ),
    *FALLS_SILENT,
    ask("restarted groups: leave", by("stays: joins", lambda me: leave(STAYS, MemberIdentity(me)))),
)
