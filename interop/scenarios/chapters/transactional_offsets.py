"""Offsets that are committed in transactions: TxnOffsetCommit, and what OffsetFetch returns meanwhile."""

from __future__ import annotations

from barnabas.wire.apis import APIS
from barnabas.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from interop.scenarios.group_requests import (
    by,
    commit,
    committed,
    delete_groups,
    describe_groups,
    forget,
    heartbeat,
    join,
    sync,
)
from interop.scenarios.requests import ask, create, new_topic
from interop.scenarios.step import Await, Step
from interop.scenarios.transaction_requests import (
    Producer,
    add_offsets,
    added,
    ended,
    init,
    started,
    txn_commit,
)

PLACE = "tx-counted"
GROUP, MEMBERS, STATIC, OTHER = "tx-offsets", "tx-members", "tx-static", "tx-others"
P = Producer(name="tx-o", since="txn offsets: a producer")
Q = Producer(name="tx-o2", since="txn offsets: another producer")
JOINED, STATIC_JOINED = "txn offsets: a member joins", "txn offsets: a static member joins"
VERSIONS = APIS[TxnOffsetCommitRequest.API_KEY].versions
LONG_NOTE = "n" * 5000


def offsets(when: str, group: str = GROUP) -> tuple[Step, ...]:
    return (
        ask(f"{when}: offsets", committed(group)),
        ask(f"{when}: offsets of named partitions", committed(group, of={PLACE: (0, 1, 9)})),
    )


def stable(when: str, group: str = GROUP) -> tuple[Step, ...]:
    """The offsets for a reader that waits for open transactions. Barnabas waits for some seconds, so this is rare."""
    named = {PLACE: (0, 1, 9)}
    return (ask(f"{when}: stable offsets", committed(group, of=named, stable=True)),)


def opened(when: str, producer: Producer, group: str) -> Step:
    """Add a group, as soon as the previous transaction is complete."""
    return Step(
        name=when,
        action=Await(request=add_offsets(producer, group), path="error_code", value="NONE"),
    )


def applied(when: str, group: str, offset: int, partition: int = 0) -> Step:
    """Wait until the group has the offset: the marker is applied after the transaction is complete."""
    return Step(
        name=when,
        action=Await(
            request=committed(group),
            path=f"groups.{group}.topics.{PLACE}.partitions.{partition}.committed_offset",
            value=offset,
        ),
    )


PREPARATION: tuple[Step, ...] = (
    ask("txn offsets: create", create(new_topic(PLACE, 2))),
    *(
        Step(
            name=f"txn offsets: the coordinator of {group} is ready",
            action=Await(request=committed(group), path=f"groups.{group}.error_code", value="NONE"),
        )
        for group in (GROUP, MEMBERS, STATIC, OTHER)
    ),
    started(P.since, init(P.name)),
    started(Q.since, init(Q.name)),
)

COMMIT: tuple[Step, ...] = (
    *(
        ask(
            f"txn offsets: a group that was not added, version {version}",
            txn_commit(P, GROUP, {PLACE: {0: 1}}),
            version,
        )
        for version in VERSIONS
    ),
    *offsets("txn offsets: not added"),
    opened("txn offsets: add", P, GROUP),
    *(
        ask(
            f"txn offsets: {what}, version {version}",
            txn_commit(producer, GROUP, {PLACE: {0: 2}}),
            version,
        )
        for what, producer in (
            ("another id", P.with_other_id()),
            ("an old epoch", P.with_epoch(-1)),
            ("a future epoch", P.with_epoch(1)),
            ("an unknown transactional id", P.named("tx-nobody")),
            ("an empty transactional id", P.named("")),
        )
        for version in (2, 4)
    ),
    ask("txn offsets: an empty group", txn_commit(P, "", {PLACE: {0: 2}})),
    ask("txn offsets: an unknown topic", txn_commit(P, GROUP, {"nobody": {0: 2}})),
    ask("txn offsets: an unknown partition", txn_commit(P, GROUP, {PLACE: {0: 3, 9: 2}})),
    ask("txn offsets: no topic", txn_commit(P, GROUP, {})),
    ask("txn offsets: a long note", txn_commit(P, GROUP, {PLACE: {1: 2}}, note=LONG_NOTE)),
    ask("txn offsets: a negative offset", txn_commit(P, GROUP, {PLACE: {1: -5}})),
    ask(
        "txn offsets: a generation without a member",
        txn_commit(P, GROUP, {PLACE: {0: 2}}, generation=3),
    ),
    ask(
        "txn offsets: an unknown member",
        txn_commit(P, GROUP, {PLACE: {0: 2}}, generation=3, member="somebody"),
    ),
    ask(
        "txn offsets: an unknown static member",
        txn_commit(P, GROUP, {PLACE: {0: 2}}, generation=3, member="somebody", instance="s"),
    ),
    *(
        ask(
            f"txn offsets: version {version}",
            txn_commit(P, GROUP, {PLACE: {0: 10 + version}}),
            version,
        )
        for version in VERSIONS
    ),
    *offsets("txn offsets: open"),
    *stable("txn offsets: open"),
    ask("txn offsets: a plain commit meanwhile", commit(GROUP, {PLACE: {0: 5, 1: 6}})),
    *offsets("txn offsets: a plain commit meanwhile"),
    ask("txn offsets: describe the group", describe_groups(GROUP)),
    ask("txn offsets: forget a pending offset", forget(GROUP, {PLACE: (1,)})),
    *offsets("txn offsets: forgotten"),
    *stable("txn offsets: forgotten"),
    *ended("txn offsets: commit", P, commit=True),
    applied("txn offsets: applied", GROUP, 5),
    *offsets("txn offsets: committed"),
    *stable("txn offsets: committed"),
    ask("txn offsets: after a commit", txn_commit(P, GROUP, {PLACE: {0: 99}})),
    ask("txn offsets: after a commit, version 3", txn_commit(P, GROUP, {PLACE: {0: 99}}), 3),
    opened("txn offsets: add to the second", P, GROUP),
    ask("txn offsets: the second", txn_commit(P, GROUP, {PLACE: {0: 20, 1: 21}})),
    *offsets("txn offsets: the second"),
    *ended("txn offsets: abort", P, commit=False),
    applied("txn offsets: discarded", GROUP, 5),
    *offsets("txn offsets: aborted"),
    # Two transactions with offsets of the same partition.
    opened("txn offsets: two, add one", P, GROUP),
    opened("txn offsets: two, add another", Q, GROUP),
    ask("txn offsets: two, one", txn_commit(P, GROUP, {PLACE: {0: 30}})),
    ask("txn offsets: two, another", txn_commit(Q, GROUP, {PLACE: {0: 31}}, note="q")),
    *ended("txn offsets: two, commit another", Q, commit=True),
    *ended("txn offsets: two, commit one", P, commit=True),
    applied("txn offsets: two, applied", GROUP, 31),
    *offsets("txn offsets: two"),
    # A plain commit after that in the transaction.
    opened("txn offsets: mixed, add", P, GROUP),
    ask("txn offsets: mixed, in a transaction", txn_commit(P, GROUP, {PLACE: {0: 40}})),
    ask("txn offsets: mixed, plain", commit(GROUP, {PLACE: {0: 41}})),
    *ended("txn offsets: mixed, commit", P, commit=True),
    applied("txn offsets: mixed, applied", GROUP, 41),
    *offsets("txn offsets: mixed"),
    # A group that has offsets only in a transaction.
    opened("txn offsets: only pending, add", P, OTHER),
    ask("txn offsets: only pending", txn_commit(P, OTHER, {PLACE: {0: 1}})),
    *offsets("txn offsets: only pending", OTHER),
    ask("txn offsets: describe with pending offsets only", describe_groups(OTHER)),
    ask("txn offsets: delete a group with pending offsets", delete_groups(OTHER)),
    *offsets("txn offsets: deleted meanwhile", OTHER),
    *ended("txn offsets: commit to a deleted group", P, commit=True),
    *offsets("txn offsets: committed to a deleted group", OTHER),
)

MEMBER: tuple[Step, ...] = (
    ask("txn offsets: a member asks for its id", join(MEMBERS)),
    ask(JOINED, by("txn offsets: a member asks for its id", lambda it: join(MEMBERS, it))),
    opened("txn offsets: add the group of a member", P, MEMBERS),
    ask(
        "txn offsets: before the assignment",
        txn_commit(P, MEMBERS, {PLACE: {0: 1}}, generation=1, member_of=JOINED),
    ),
    ask(
        "txn offsets: assigned",
        by(JOINED, lambda it: sync(MEMBERS, 1, it, {it: b"all"})),
    ),
    ask("txn offsets: without a member", txn_commit(P, MEMBERS, {PLACE: {0: 1}})),
    ask(
        "txn offsets: of a member",
        txn_commit(P, MEMBERS, {PLACE: {0: 2}}, generation=1, member_of=JOINED),
    ),
    *(
        ask(
            f"txn offsets: of generation {generation}",
            txn_commit(P, MEMBERS, {PLACE: {0: 3}}, generation=generation, member_of=JOINED),
        )
        for generation in (0, 2, -1)
    ),
    ask(
        "txn offsets: of another member",
        txn_commit(P, MEMBERS, {PLACE: {0: 3}}, generation=1, member="somebody"),
    ),
    ask(
        "txn offsets: of a member without a generation",
        txn_commit(P, MEMBERS, {PLACE: {0: 3}}, member_of=JOINED),
    ),
    ask(
        "txn offsets: of an unknown static member",
        txn_commit(P, MEMBERS, {PLACE: {0: 3}}, generation=1, member_of=JOINED, instance="s"),
    ),
    ask("txn offsets: the member goes on", by(JOINED, lambda it: heartbeat(MEMBERS, 1, it))),
    *offsets("txn offsets: of a member", MEMBERS),
    ask(STATIC_JOINED, join(STATIC, instance="s")),
    ask(
        "txn offsets: the static member is assigned",
        by(STATIC_JOINED, lambda it: sync(STATIC, 1, it, {it: b"all"}, instance="s")),
    ),
    ask("txn offsets: add the group of a static member", add_offsets(P, STATIC)),
    ask(
        "txn offsets: of a static member",
        txn_commit(P, STATIC, {PLACE: {0: 7}}, generation=1, member_of=STATIC_JOINED, instance="s"),
    ),
    ask(
        "txn offsets: of a fenced static member",
        txn_commit(P, STATIC, {PLACE: {0: 8}}, generation=1, member="other", instance="s"),
    ),
    *ended("txn offsets: commit of members", P, commit=True),
    applied("txn offsets: applied to the member", MEMBERS, 2),
    applied("txn offsets: applied to the static member", STATIC, 7),
    *offsets("txn offsets: of members", MEMBERS),
)

# An open transaction with offsets, across a restart.
UNFINISHED: tuple[Step, ...] = (
    opened("txn offsets: open before a restart", Q, GROUP),
    ask("txn offsets: commit before a restart", txn_commit(Q, GROUP, {PLACE: {0: 50}})),
    *offsets("txn offsets: before a restart"),
)
AFTER_RESTART: tuple[Step, ...] = (
    Step(
        name="restarted: the coordinator of transactional offsets is ready",
        action=Await(request=committed(GROUP), path=f"groups.{GROUP}.error_code", value="NONE"),
    ),
    *offsets("restarted: transactional"),
    *stable("restarted: transactional"),
    added("restarted: the transaction of offsets is open", Q, {PLACE: (0,)}),
    *ended("restarted: commit offsets", Q, commit=True),
    applied("restarted: offsets are applied", GROUP, 50),
    *offsets("restarted: transactional, committed"),
)

STEPS = (*PREPARATION, *COMMIT, *MEMBER, *UNFINISHED)
