"""The transaction coordinator: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and what it lists."""

from __future__ import annotations

from barnabas.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.wire.apis import APIS
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.messages.end_txn import EndTxnRequest
from barnabas.wire.messages.find_coordinator import CoordinatorType, FindCoordinatorRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from interop.scenarios.requests import ask, create, metadata, new_topic
from interop.scenarios.step import Await, Step
from interop.scenarios.transaction_requests import (
    Partitions,
    Producer,
    add,
    add_many,
    add_offsets,
    added,
    describe_transactions,
    end,
    ended,
    in_state,
    init,
    init_again,
    list_transactions,
    started,
)

TOPIC = "tx"
MAX_TIMEOUT_MS = 900_000
ADD_VERSIONS = range(4)

A = Producer(name="tx-a", since="init: a new id")
B = Producer(name="tx-b", since="init: another id")
NOBODY = A.named("tx-nobody")


def described(step: str, name: str) -> Step:
    return ask(f"{step}: described", describe_transactions(name))


PREPARATION: tuple[Step, ...] = (
    ask("transactions: create their topic", create(new_topic(TOPIC, 3))),
    Step(
        name="transactions: the coordinator is found",
        action=Await(
            request=FindCoordinatorRequest(
                coordinator_keys=(A.name, B.name, NOBODY.name), key_type=CoordinatorType.TRANSACTION
            ),
            path="coordinators.1#3.error_code",  # the third one of broker 1
            value="NONE",
        ),
    ),
    Step(
        name="transactions: the topic of groups is there",
        action=Await(
            request=metadata(CONSUMER_OFFSETS, create=True),
            path=f"topics.{CONSUMER_OFFSETS}.partitions.3.error_code",
            value="NONE",
        ),
    ),
)

INIT: tuple[Step, ...] = (
    started(A.since, init(A.name)),
    described(A.since, A.name),
    started(B.since, init(B.name)),
    ask("init: again", init(A.name)),
    *(
        ask(f"init: version {version}", init(A.name), version)
        for version in APIS[InitProducerIdRequest.API_KEY].versions
    ),
    # A producer that continues sends the id and epoch that it has.
    ask("init: with id and epoch", init_again(A.after("init: version 5"))),
    ask("init: with id and epoch, repeated", init_again(A.after("init: version 5"))),
    described("init: with id and epoch, repeated", A.name),
    ask("init: with the next epoch", init_again(A.after("init: with id and epoch"))),
    ask("init: with an epoch two back", init_again(A.after("init: version 5"))),
    *(
        ask(f"init: with an old epoch, version {version}", init_again(A), version)
        for version in (3, 4, 5)
    ),
    ask("init: with a future epoch", init_again(A.after("init: version 5").with_epoch(9))),
    ask("init: with another id", init_again(A.with_other_id())),
    ask("init: with the id of another producer", init_again(B.named(A.name))),
    ask("init: without an epoch", init(A.name, producer_id=0)),
    ask("init: without an id", init(A.name, epoch=0)),
    ask("init: an unknown id with an epoch", init("tx-c", producer_id=77, epoch=7)),
    described("init: an unknown id with an epoch", "tx-c"),
    ask("init: this id again", init("tx-c")),
    *(
        ask(f"init: timeout {timeout_ms}", init(B.name, timeout_ms=timeout_ms))
        for timeout_ms in (0, -1, 1, MAX_TIMEOUT_MS, MAX_TIMEOUT_MS + 1, 2**31 - 1)
    ),
    ask("init: a wrong timeout of an unknown id", init("tx-d", timeout_ms=0)),
    described("init: a wrong timeout of an unknown id", "tx-d"),
    ask("init: an empty id with an epoch", init("", producer_id=1, epoch=1)),
    ask("init: a long id", init("t" * 300)),
    started("init: ready", init(B.name)),
    started("init: ready to write", init(A.name)),
)

W = A.after("init: ready to write")
ONE: Partitions = {TOPIC: (0,)}


def wrong(producer: Producer) -> dict[str, Producer]:
    return {
        "another id": producer.with_other_id(),
        "an old epoch": producer.with_epoch(-1),
        "a future epoch": producer.with_epoch(1),
        "an unknown transactional id": producer.named("tx-nobody"),
        "an empty transactional id": producer.named(""),
        "the id of another producer": producer.named(B.name),
    }


WRONG = wrong(W)
PLACES: dict[str, Partitions] = {
    "an unknown partition": {TOPIC: (7,)},
    "a known and an unknown partition": {TOPIC: (1, 7)},
    "an unknown topic": {"nobody": (0,)},
    "a bad name": {"a/b": (0,)},
    "an empty name": {"": (0,)},
    "a negative partition": {TOPIC: (-1,)},
    "no topic": {},
    "no partition": {TOPIC: ()},
    "a partition twice": {TOPIC: (0, 0)},
    "the topic of transactions": {TRANSACTION_STATE: (0,)},
    "the topic of groups": {CONSUMER_OFFSETS: (0,)},
}

ADD: tuple[Step, ...] = (
    *(
        ask(f"add: {what}, version {version}", add(producer, ONE), version)
        for what, producer in WRONG.items()
        for version in (0, 1, 2, 3)
        if version in (1, 3) or "epoch" in what
    ),
    *(
        ask(f"add: {what}", add(W, partitions), 3)
        for what, partitions in PLACES.items()
        if "topic of" not in what and what != "a partition twice"
    ),
    described("add: nothing was added", W.name),
    *(ask(f"add: version {version}", add(W, ONE), version) for version in ADD_VERSIONS),
    described("add: one partition", W.name),
    ask("add: two more partitions", add(W, {TOPIC: (1, 2)}), 3),
    ask("add: all again", add(W, {TOPIC: (0, 1, 2)}), 3),
    ask("add: a partition twice", add(W, PLACES["a partition twice"]), 3),
    *(
        ask(f"add: {what}, in a transaction", add(W, partitions), 3)
        for what, partitions in PLACES.items()
        if "topic of" in what or "unknown" in what
    ),
    described("add: many partitions", W.name),
    *(
        ask(f"add: {what}, in a transaction", add(producer, ONE), 3)
        for what, producer in WRONG.items()
    ),
)

VERIFY: tuple[Step, ...] = (
    *(
        step
        for version in (4, 5)
        for step in (
            ask(f"verify: added, version {version}", add_many((W, True, ONE)), version),
            ask(
                f"verify: not open, version {version}",
                add_many((B.after("init: ready"), True, ONE)),
                version,
            ),
            *(
                ask(f"verify: {what}, version {version}", add_many((W, True, places)), version)
                for what, places in PLACES.items()
                if what != "a partition twice"
            ),
            *(
                ask(f"verify: {what}, version {version}", add_many((producer, True, ONE)), version)
                for what, producer in WRONG.items()
            ),
            *(
                ask(f"add: {what}, version {version}", add_many((producer, False, ONE)), version)
                for what, producer in WRONG.items()
            ),
            ask(
                f"add: two transactions, version {version}",
                add_many(
                    (W, False, {TOPIC: (0, 1)}), (B.after("init: ready"), True, {TOPIC: (0,)})
                ),
                version,
            ),
            ask(
                f"add: an unknown partition, version {version}",
                add_many((W, False, PLACES["a known and an unknown partition"])),
                version,
            ),
        )
    ),
    described("verify: nothing has changed", W.name),
    described("verify: nothing was opened", B.name),
    ask("add: two transactions", add_many((W, False, ONE), (B.after("init: ready"), False, ONE))),
    described("add: two transactions", B.name),
)

END: tuple[Step, ...] = (
    *(
        ask(f"end: {what}, version {version}", end(producer, commit=True), version)
        for what, producer in WRONG.items()
        for version in (1, 2, 4)
        if version == 4 or "epoch" in what
    ),
    ask("end: abort with an old epoch", end(W.with_epoch(-1), commit=False)),
    *ended("end: commit", W, commit=True),
    ask("end: commit again", end(W, commit=True)),
    ask("end: abort what was committed", end(W, commit=False)),
    ask("verify: a complete transaction", add_many((W, True, ONE))),
    ask("verify: a complete transaction, version 4", add_many((W, True, ONE)), 4),
    *ended("end: abort", B.after("init: ready"), commit=False),
    ask("end: abort again", end(B.after("init: ready"), commit=False)),
    ask("end: commit what was aborted", end(B.after("init: ready"), commit=True)),
    *(
        step
        for version in APIS[EndTxnRequest.API_KEY].versions
        for step in (
            added(f"end: begin for version {version}", W, {TOPIC: (0, 2)}),
            ask(f"end: version {version}", end(W, commit=version % 2 == 0), version),
            in_state(
                f"end: version {version}, complete",
                W.name,
                "CompleteAbort" if version % 2 else "CompleteCommit",
            ),
        )
    ),
    started("end: a new epoch", init(W.name)),
    ask("end: commit without a transaction", end(A.after("end: a new epoch"), commit=True)),
    ask("end: abort without a transaction", end(A.after("end: a new epoch"), commit=False)),
    described("end: without a transaction", W.name),
)

N = A.after("end: a new epoch")
GROUP = "tx-group"
OFFSETS: tuple[Step, ...] = (
    *(
        ask(f"add offsets: an empty group, version {version}", add_offsets(N, ""), version)
        for version in (0, 4)
    ),
    *(
        ask(f"add offsets: {what}, version {version}", add_offsets(producer, GROUP), version)
        for what, producer in wrong(N).items()
        for version in (1, 4)
    ),
    described("add offsets: nothing was added", N.name),
    *(
        ask(f"add offsets: version {version}", add_offsets(N, GROUP), version)
        for version in APIS[AddOffsetsToTxnRequest.API_KEY].versions
    ),
    ask("add offsets: another group", add_offsets(N, "tx-group-2")),
    described("add offsets: two groups", N.name),
    *ended("add offsets: commit", N, commit=True),
)

F1 = Producer(name="tx-f", since="fence: a producer")
F2 = F1.after("fence: its successor")
F3 = F1.after("fence: continued")
FENCE: tuple[Step, ...] = (
    started(F1.since, init(F1.name)),
    added("fence: add", F1, ONE),
    ask("fence: init while a transaction is open", init(F1.name)),
    in_state("fence: the transaction is aborted", F1.name, "CompleteAbort"),
    ask("fence: the old producer ends it", end(F1, commit=False)),
    ask("fence: the old producer commits it", end(F1, commit=True)),
    ask("fence: the old producer adds", add(F1, ONE), 3),
    ask("fence: the old producer continues", init_again(F1)),
    started(F2.since, init(F1.name)),
    described("fence: its successor", F1.name),
    added("fence: add for the successor", F2, ONE),
    ask("fence: continue while a transaction is open", init_again(F2)),
    in_state("fence: the second transaction is aborted", F1.name, "CompleteAbort"),
    ask("fence: continue with the old epoch", init_again(F2)),
    started(F3.since, init(F1.name)),
    described("fence: continued", F1.name),
    ask("fence: the successor ends what was fenced", end(F2, commit=True)),
    added("fence: add again", F3, ONE),
    ask("fence: an old producer continues while a transaction is open", init_again(F1)),
    in_state("fence: the third transaction is aborted", F1.name, "CompleteAbort"),
    ask("fence: it has fenced the newest producer", end(F3, commit=True)),
)

T = Producer(name="tx-t", since="timeout: a producer")
TIMEOUT: tuple[Step, ...] = (
    started(T.since, init(T.name, timeout_ms=100)),
    added("timeout: add", T, ONE),
    in_state("timeout: aborted", T.name, "CompleteAbort"),
    ask("timeout: end", end(T, commit=True)),
    ask("timeout: end, version 1", end(T, commit=True), 1),
    ask("timeout: abort", end(T, commit=False)),
    ask("timeout: add again", add(T, ONE), 3),
    ask("timeout: add offsets", add_offsets(T, GROUP)),
    ask("timeout: continue", init_again(T)),
    started("timeout: init", init(T.name)),
)

L = Producer(name="tx-l", since="list: a producer")
LIST: tuple[Step, ...] = (
    started(L.since, init(L.name)),
    added("list: add", L, {TOPIC: (0, 2)}),
    ask("list: all", list_transactions()),
    ask("list: all, version 0", list_transactions(), 0),
    *(
        ask(f"list: state {state}", list_transactions(states=(state,)))
        for state in (
            *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit"),
            *("CompleteAbort", "PrepareEpochFence", "Dead", "ongoing", "", "Unknown"),
        )
    ),
    ask("list: two states", list_transactions(states=("Empty", "CompleteAbort"))),
    ask("list: a known and an unknown state", list_transactions(states=("Ongoing", "Lost"))),
    ask("list: two unknown states", list_transactions(states=("Gone", "Lost"))),
    ask("list: of a producer", list_transactions(of=(L,))),
    ask("list: of two producers", list_transactions(of=(L, A))),
    ask("list: of an unknown producer", list_transactions(ids=(99_999,))),
    ask("list: of a producer in a state", list_transactions(of=(L,), states=("Empty",))),
    ask("list: long ones", list_transactions(duration_ms=3_600_000)),
    ask("list: of any duration", list_transactions(duration_ms=0)),
    ask("list: of any duration, open", list_transactions(duration_ms=0, states=("Ongoing",))),
    ask("list: a negative duration", list_transactions(duration_ms=-7)),
    ask("describe: several", describe_transactions(L.name, A.name, B.name, T.name)),
    ask("describe: unknown", describe_transactions(NOBODY.name)),
    ask("describe: empty", describe_transactions("")),
    ask("describe: one twice", describe_transactions(L.name, L.name)),
    ask("describe: a known and an unknown", describe_transactions(NOBODY.name, L.name)),
    ask("describe: none", describe_transactions()),
    *ended("list: abort", L, commit=False),
)

STEPS = (*PREPARATION, *INIT, *ADD, *VERIFY, *END, *OFFSETS, *FENCE, *TIMEOUT, *LIST)
