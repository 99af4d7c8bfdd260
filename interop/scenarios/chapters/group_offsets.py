"""OffsetCommit, OffsetFetch, OffsetDelete without members; DescribeGroups, ListGroups, DeleteGroups."""

from __future__ import annotations

from barnabas.wire.apis import APIS
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.list_groups import ListGroupsRequest
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from interop.scenarios.chapters.coordinators import coordinators_are_ready
from interop.scenarios.group_requests import (
    OTHER_TOPIC,
    TOPIC,
    alone,
    commit,
    committed,
    delete_groups,
    describe_groups,
    forget,
    list_groups,
)
from interop.scenarios.requests import THEN, ask, create, delete, new_topic
from interop.scenarios.step import Await, Step

COMMITS = APIS[OffsetCommitRequest.API_KEY].versions
FETCHES = APIS[OffsetFetchRequest.API_KEY].versions
ALL_SINCE = 2
DESCRIPTIONS = APIS[DescribeGroupsRequest.API_KEY].versions
LISTS = APIS[ListGroupsRequest.API_KEY].versions
DELETIONS = APIS[DeleteGroupsRequest.API_KEY].versions
ONE = {TOPIC: {0: 1}}
THREE = {TOPIC: (0, 1, 2)}
NOTE_MAX = 4096
DAY_MS = 86_400_000

REFUSED = {
    "partitions that are there and others": commit("refused", {TOPIC: {0: 6, 9: 6, -1: 6}}),
    "an unknown topic": commit("refused", {"nobody": {0: 1}}),
    "a note too long": commit("refused", {TOPIC: {1: 1}}, note="x" * (NOTE_MAX + 1)),
    "no note": commit("refused", {TOPIC: {2: 2}}, note=None),
    "an offset of -1": commit("refused", {TOPIC: {1: -1}}),
    "nothing": commit("refused", {}),
    "a generation of nobody": commit("nobody", ONE, generation=3, member="me"),
}

COMMITTED = (
    *(
        ask(
            f"commit: version {version}",
            commit(alone(version), {TOPIC: {0: 7, 1: version}}, note=f"v{version}", epoch=0),
            version,
        )
        for version in COMMITS
    ),
    *(
        ask(
            f"commit: what became of version {version}",
            committed(alone(version), of=THREE, version=at),
            at,
        )
        for version in COMMITS
        for at in [max(1, version)]
    ),
    *(
        ask(f"commit: {what}, version {version}", request, version)
        for version in COMMITS
        for what, request in REFUSED.items()
        if version or request.generation_id_or_member_epoch < 0
    ),
    *(
        ask(
            f"commit: what became of those that were refused, version {version}",
            committed("refused", of=THREE, version=version),
            version,
        )
        for version in (0, 9)
    ),
    *(
        ask(
            f"commit: kept for a day, version {version}",
            commit("kept", ONE, retention_ms=DAY_MS),
            version,
        )
        for version in (2, 3, 4)
    ),
    ask("commit: with a time, version 1", commit("timed", ONE, timestamp=THEN), 1),
    ask("commit: what became of a time", committed("timed")),
    *(
        ask(f"commit: with {what}", request)
        for what, request in {
            "a generation, to a group nobody knows": commit("none-1", ONE, generation=1),
            "a generation of 0, to a group nobody knows": commit("none-2", ONE, generation=0),
            "a member, to a group nobody knows": commit("named", ONE, member="me"),
            "an instance, to a group nobody knows": commit("placed", ONE, instance="i"),
            "a generation, to a group that is empty": commit("named", ONE, generation=1),
            "a generation of 0, to a group that is empty": commit("named", ONE, generation=0),
            "a member and a generation": commit("named", ONE, generation=0, member="me"),
            "a generation of -7": commit("named", ONE, generation=-7),
            "no note": commit("noted", ONE, note=None),
            "a note as long as may be": commit("noted", {TOPIC: {1: 1}}, note="x" * NOTE_MAX),
            "a note too long": commit("noted", {TOPIC: {2: 1}}, note="x" * (NOTE_MAX + 1)),
            "a note of letters of two bytes": commit("noted", {TOPIC: {2: 1}}, note="ü" * NOTE_MAX),
            "a note of letters of four bytes": commit(
                "noted", {TOPIC: {2: 1}}, note="\U0001f600" * (NOTE_MAX // 2 + 1)
            ),
            "an offset of -1": commit("odd", {TOPIC: {0: -1}}),
            "an offset of -5": commit("odd", {TOPIC: {1: -5}}),
            "the largest offset": commit("odd", {TOPIC: {2: (1 << 63) - 1}}),
            "an offset beyond the end": commit("odd", {OTHER_TOPIC: {0: 1000}}),
            "a leader epoch to come": commit("odd", {OTHER_TOPIC: {0: 1000}}, epoch=77),
            "nothing": commit("nothing", {}),
            "a topic without partitions": commit("nothing", {TOPIC: {}}),
            "an unknown topic": commit("lost", {"nobody": {0: 1}}),
            "an unknown partition": commit("lost", {TOPIC: {9: 1}}),
            "a partition of -1": commit("lost", {TOPIC: {-1: 1}}),
            "a bad name": commit("lost", {"a/b": {0: 1}}),
            "no name": commit("lost", {"": {0: 1}}),
            "known and unknown ones": commit(
                "mixed", {TOPIC: {0: 1, 9: 1}, "nobody": {0: 1}, OTHER_TOPIC: {0: 2}}
            ),
            "the topic of offsets": commit("inner", {"__consumer_offsets": {0: 1}}),
            "no group": commit("", ONE),
        }.items()
    ),
    ask(
        "commit: a partition twice",
        OffsetCommitRequest(
            group_id="twice",
            topics=(
                OffsetCommitRequestTopic(
                    TOPIC,
                    (OffsetCommitRequestPartition(0, 1), OffsetCommitRequestPartition(0, 2)),
                ),
            ),
        ),
    ),
    *(
        ask(f"commit: no group, version {version}", commit("", ONE), version)
        for version in (1, 2, 7)
    ),
)

FETCHED = (
    *(
        ask(
            f"committed: version {version}",
            committed(alone(9), of=THREE, version=version),
            version,
        )
        for version in FETCHES
    ),
    *(
        ask(
            f"committed: everything, version {version}",
            committed("mixed", version=version),
            version,
        )
        for version in FETCHES
        if version >= ALL_SINCE
    ),
    *(
        ask(
            f"committed: {what}, version {version}",
            committed(group, of=of, version=version),
            version,
        )
        for what, group, of in (
            ("a group nobody knows", "nowhere", THREE),
            ("no group", "", THREE),
            ("no topics", "mixed", {}),
            ("unknown ones", "mixed", {TOPIC: (0, 9, -1), "nobody": (0,), "a/b": (0,), "": (0,)}),
            ("a partition twice", "mixed", {TOPIC: (0, 0)}),
            ("a topic without partitions", "mixed", {TOPIC: ()}),
        )
        for version in (1, 2, 7, 9)
    ),
    ask(
        "committed: version 0, of what is in the registry",
        committed(alone(0), of=THREE, version=0),
        0,
    ),
    ask("committed: everything of a group nobody knows", committed("nowhere")),
    ask("committed: of several groups", committed("mixed", "nowhere", "odd", "noted", "twice")),
    ask("committed: of several, stable ones", committed("mixed", "odd", stable=True)),
    ask("committed: of a group twice", committed("odd", "odd")),
    ask("committed: stable, version 7", committed("mixed", version=7, stable=True), 7),
    ask(
        "committed: asked by a member",
        OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(
                    "mixed",
                    member_id="me",
                    member_epoch=3,
                    topics=(OffsetFetchRequestTopic(TOPIC, (0,)),),
                ),
            )
        ),
    ),
)

SEEN = (
    *(
        ask(
            f"describe groups: version {version}",
            describe_groups("shared", "stays", "connectors", "mixed", "nowhere", ""),
            version,
        )
        for version in DESCRIPTIONS
    ),
    *(
        ask(
            f"describe groups: with operations, version {version}",
            describe_groups("mixed", "nowhere", operations=True),
            version,
        )
        for version in (3, 5)
    ),
    ask("describe groups: none", describe_groups()),
    ask("describe groups: one twice", describe_groups("mixed", "mixed")),
    *(ask(f"list groups: version {version}", list_groups(), version) for version in LISTS),
    *(
        ask(f"list groups: in state {', '.join(states)}", list_groups(states=states))
        for states in (
            ("Stable",),
            ("Empty",),
            ("stable", "EMPTY"),
            ("PreparingRebalance",),
            ("CompletingRebalance",),
            ("Dead",),
            ("NoSuch",),
            ("",),
        )
    ),
    *(
        ask(f"list groups: of type {', '.join(types)}", list_groups(types=types))
        for types in (("classic",), ("Classic", "consumer"), ("consumer",), ("share",), ("x",))
    ),
    ask("list groups: of a state and a type", list_groups(states=("Stable",), types=("classic",))),
    ask("list groups: of a state, version 4", list_groups(states=("Stable",)), 4),
)

DELETED = (
    *(
        ask(f"offset delete: {what}", request)
        for what, request in {
            "of a group nobody knows": forget("nowhere", THREE),
            "of no group": forget("", THREE),
            "nothing": forget("mixed", {}),
            "a topic without partitions": forget("mixed", {TOPIC: ()}),
            "one that was never committed": forget("mixed", {TOPIC: (2,)}),
            "known and unknown ones": forget("mixed", {TOPIC: (0, 9), "nobody": (0,)}),
            "the last": forget("mixed", {OTHER_TOPIC: (0,)}),
        }.items()
    ),
    ask("offset delete: what is left", committed("mixed")),
    ask("offset delete: the group of it", describe_groups("mixed")),
    ask("offset delete: again", forget("mixed", {OTHER_TOPIC: (0,)})),
    *(
        ask(
            f"delete groups: version {version}",
            delete_groups(alone(version + 1), "nowhere", "stays", "short", ""),
            version,
        )
        for version in DELETIONS
    ),
    ask("delete groups: none", delete_groups()),
    ask("delete groups: one twice", delete_groups("odd", "odd")),
    ask("delete groups: empty after its members have left", delete_groups("shared")),
    ask("delete groups: what is left of it", describe_groups("odd", "shared", alone(1))),
    ask("delete groups: what was committed", committed("odd", "shared", of=THREE)),
    ask("delete groups: those that are left", list_groups()),
    ask("delete groups: a commit makes it anew", commit("odd", ONE)),
)

GONE = "gone-soon"
OF_DELETED_TOPICS = (
    ask("offsets of a deleted topic: it is created", create(new_topic(GONE))),
    ask("offsets of a deleted topic: they are all there is", commit("orphan", {GONE: {0: 1}})),
    ask(
        "offsets of a deleted topic: there are others",
        commit("half-orphan", {GONE: {0: 1}, TOPIC: {0: 1}}),
    ),
    ask("offsets of a deleted topic: it is deleted", delete(GONE)),
    *(
        Step(
            name=f"offsets of a deleted topic: gone, of {group}",
            action=Await(
                request=committed(group, of={GONE: (0,)}),
                path=f"groups.{group}.topics.{GONE}.partitions.0.committed_offset",
                value=-1,
            ),
        )
        for group in ("orphan", "half-orphan")
    ),
    ask("offsets of a deleted topic: the rest", committed("orphan", "half-orphan")),
    ask("offsets of a deleted topic: the groups", describe_groups("orphan", "half-orphan")),
    # The topic's files are deleted asynchronously.
    Step(
        name="offsets of a deleted topic: its name is free again",
        action=Await(
            request=create(new_topic(GONE), validate_only=True),
            path=f"topics.{GONE}.error_code",
            value="NONE",
        ),
    ),
)

STEPS: tuple[Step, ...] = (*COMMITTED, *FETCHED, *SEEN, *DELETED, *OF_DELETED_TOPICS)

AFTER_RESTART: tuple[Step, ...] = (
    *coordinators_are_ready("restarted offsets"),
    ask(
        "restarted offsets: all",
        committed(*map(alone, COMMITS), "noted", "mixed", "odd", "twice", "kept", "timed", ""),
    ),
    ask(
        "restarted offsets: of before there was a topic",
        committed(alone(0), of=THREE, version=0),
        0,
    ),
    ask("restarted offsets: described", describe_groups("odd", "mixed", "shared", "named")),
)
