"""Records of transactions: Produce, WriteTxnMarkers, Fetch and ListOffsets with isolation levels, DescribeProducers."""

from __future__ import annotations

from barnabas.metadata.topic_names import TRANSACTION_STATE
from barnabas.wire.messages.fetch import READ_COMMITTED
from interop.scenarios.requests import (
    FAR,
    THEN,
    ask,
    batch,
    create,
    delete,
    delete_records,
    epoch_end,
    fetch,
    list_offsets,
    new_topic,
    produce,
)
from interop.scenarios.step import ListPartition, Step
from interop.scenarios.transaction_requests import (
    Partitions,
    Producer,
    add,
    add_many,
    added,
    describe_producers,
    describe_transactions,
    end,
    ended,
    in_state,
    init,
    markers,
    read_committed,
    started,
    write,
)

TOPIC, MIXED, MARKED = "tx-records", "tx-mixed", "tx-marked"
PLAIN, STUCK = "tx-plain", "tx-stuck"
ONE: Partitions = {TOPIC: (0,)}
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3

P = Producer(name="tx-p", since="txn records: a producer")
P2 = P.after("txn records: its successor")
Q = Producer(name="tx-q", since="txn records: another producer")


def offsets(when: str, topic: str, *timestamps: int) -> tuple[Step, ...]:
    return tuple(
        ask(
            f"{when}: offset for {timestamp}, isolation level {isolation}",
            list_offsets(topic, timestamp, isolation_level=isolation),
        )
        for timestamp in timestamps or (LATEST,)
        for isolation in (0, READ_COMMITTED)
    )


def seen(when: str, topic: str) -> tuple[Step, ...]:
    """The stable part of a log, and its ends."""
    return (read_committed(when, topic), *offsets(when, topic))


PRODUCE: tuple[Step, ...] = (
    ask("txn records: create", create(*map(new_topic, (TOPIC, MIXED, MARKED, PLAIN, STUCK)))),
    started(P.since, init(P.name)),
    *(
        ask(f"txn records: not added, version {version}", write(P, TOPIC, 0), version)
        for version in (3, 8, 10, 11)
    ),
    *seen("txn records: not added", TOPIC),
    added("txn records: add", P, ONE),
    ask("txn records: no transactional id", write(P, TOPIC, 0, name="")),
    ask("txn records: another transactional id", write(P, TOPIC, 0, name="tx-other")),
    ask("txn records: an unknown producer id", write(P.with_other_id(), TOPIC, 0)),
    ask("txn records: an old epoch", write(P.with_epoch(-1), TOPIC, 0)),
    ask("txn records: a future epoch", write(P.with_epoch(1), TOPIC, 0)),
    ask("txn records: a first sequence that is not 0", write(P, TOPIC, 5)),
    ask("txn records: the first", write(P, TOPIC, 0, b"a", b"b")),
    *seen("txn records: the first", TOPIC),
    ask("txn records: read uncommitted", fetch(TOPIC, {0: 0}), 12),
    ask("txn records: the first again", write(P, TOPIC, 0, b"a", b"b")),
    ask("txn records: a gap", write(P, TOPIC, 9)),
    ask("txn records: a gap, not in a transaction", write(P, TOPIC, 9, transactional=False)),
    ask(
        "txn records: not in a transaction",
        write(P, TOPIC, 2, b"plain", transactional=False, name=""),
    ),
    *seen("txn records: not in a transaction", TOPIC),
    ask("txn records: another partition", write(P, PLAIN, 0)),
    ask("txn records: an unknown partition", write(P, TOPIC, 2, partition=7)),
    ask("txn records: plain ones", produce(TOPIC, batch(b"c"))),
    *seen("txn records: plain ones", TOPIC),
    *offsets("txn records: open", TOPIC, EARLIEST, MAX_TIMESTAMP, FAR, FAR + 1, THEN, THEN + 1, 0),
    ask("txn records: the producers", describe_producers(ONE)),
    ask("txn records: an old epoch, when open", write(P.with_epoch(-1), TOPIC, 3)),
    ask("txn records: the next", write(P, TOPIC, 3, b"d")),
    ask("txn records: end of the epoch", epoch_end(TOPIC, 0)),
    *ended("txn records: commit", P, commit=True),
    *seen("txn records: commit", TOPIC),
    *offsets("txn records: committed", TOPIC, EARLIEST, MAX_TIMESTAMP, FAR, FAR + 1, THEN),
    ask("txn records: the producers after a commit", describe_producers(ONE)),
    ask("txn records: after a commit", write(P, TOPIC, 4)),
    ask("txn records: after a commit, version 9", write(P, TOPIC, 4), 9),
    ask("txn records: repeated after a commit", write(P, TOPIC, 3, b"d")),
    added("txn records: add to the second", P, ONE),
    ask("txn records: the second", write(P, TOPIC, 4, b"e", b"f")),
    *seen("txn records: the second", TOPIC),
    *ended("txn records: abort", P, commit=False),
    *seen("txn records: abort", TOPIC),
    *(
        read_committed(f"txn records: from {offset}", TOPIC, offset)
        for offset in (1, 5, 6, 7, 8, 9, 10)
    ),
    *(
        ask(
            f"txn records: read committed, version {version}",
            fetch(TOPIC, {0: 0}, isolation_level=READ_COMMITTED),
            version,
        )
        for version in (4, 5, 8, 11)
    ),
    ask(
        "txn records: few bytes",
        fetch(TOPIC, {0: 5}, isolation_level=READ_COMMITTED, partition_max_bytes=1),
        12,
    ),
    ask("txn records: read uncommitted after an abort", fetch(TOPIC, {0: 0}), 12),
    *offsets("txn records: aborted", TOPIC, EARLIEST, MAX_TIMESTAMP, FAR, FAR + 1),
    started(P2.since, init(P.name)),
    ask("txn records: fenced", write(P, TOPIC, 6)),
    added("txn records: add for the successor", P2, ONE),
    ask("txn records: fenced when added", write(P, TOPIC, 6)),
    ask("txn records: the old epoch in the new transaction", write(P, TOPIC, 6, name="")),
    ask("txn records: a new epoch starts with a sequence that is not 0", write(P2, TOPIC, 6)),
    ask("txn records: a new epoch", write(P2, TOPIC, 0, b"g")),
    ask("txn records: the old epoch", write(P, TOPIC, 6)),
    *seen("txn records: a new epoch", TOPIC),
    ask("txn records: the producers of two epochs", describe_producers(ONE)),
    *ended("txn records: commit of the successor", P2, commit=True),
    *seen("txn records: commit of the successor", TOPIC),
)

INTERLEAVED: tuple[Step, ...] = (
    started(Q.since, init(Q.name)),
    added("interleaved: add one", P2, {MIXED: (0,)}),
    added("interleaved: add another", Q, {MIXED: (0,)}),
    ask("interleaved: one", write(P2, MIXED, 0, b"p1")),
    ask("interleaved: another", write(Q, MIXED, 0, b"q1", b"q2")),
    ask("interleaved: plain", produce(MIXED, batch(b"plain"))),
    *seen("interleaved: both open", MIXED),
    ask("interleaved: the producers", describe_producers({MIXED: (0,)})),
    *ended("interleaved: commit another", Q, commit=True),
    *seen("interleaved: one open", MIXED),
    added("interleaved: add another again", Q, {MIXED: (0,)}),
    ask("interleaved: another again", write(Q, MIXED, 2, b"q3")),
    *ended("interleaved: abort one", P2, commit=False),
    *seen("interleaved: another open", MIXED),
    *ended("interleaved: abort another", Q, commit=False),
    *seen("interleaved: none open", MIXED),
    *(read_committed(f"interleaved: from {offset}", MIXED, offset) for offset in range(1, 9)),
    ask("interleaved: the producers when none is open", describe_producers({MIXED: (0,)})),
    *(
        ask(f"describe producers: {what}", describe_producers(partitions))
        for what, partitions in (
            ("an unknown partition", {MIXED: (0, 7)}),
            ("an unknown topic", {"nobody": (0,)}),
            ("a bad name", {"a/b": (0,)}),
            ("a partition without producers", {PLAIN: (0,)}),
            ("no partition", {MIXED: ()}),
            ("nothing", {}),
            ("the topic of transactions", {TRANSACTION_STATE: (0,)}),
        )
    ),
    # The first transaction is removed, and its entry in the index stays.
    ask("interleaved: delete records", delete_records(MIXED, 2)),
    read_committed("interleaved: after a deletion", MIXED, 2),
    added("interleaved: add once more", Q, {MIXED: (0,)}),
    ask("interleaved: once more", write(Q, MIXED, 3, b"q4")),
    ask("interleaved: delete all records", delete_records(MIXED, -1)),
    *seen("interleaved: after a deletion of all", MIXED),
    ask("interleaved: the producers after a deletion of all", describe_producers({MIXED: (0,)})),
    *ended("interleaved: the last commit", Q, commit=True),
    read_committed("interleaved: the end", MIXED, 9),
    *offsets("interleaved: the end", MIXED),
)

H = Producer(name="tx-h", since="markers: a producer")
AT: Partitions = {MARKED: (0,)}
MARKERS: tuple[Step, ...] = (
    started(H.since, init(H.name)),
    ask("markers: a producer that never wrote", markers((H, True, AT), coordinator_epoch=0)),
    *seen("markers: a producer that never wrote", MARKED),
    *(
        ask(f"markers: {what}", markers((H, True, partitions)))
        for what, partitions in (
            ("an unknown partition", {MARKED: (7,)}),
            ("a known and an unknown partition", {MARKED: (0, 7)}),
            ("an unknown topic", {"nobody": (0,)}),
            ("a bad name", {"a/b": (0,)}),
            ("no partition", {MARKED: ()}),
        )
    ),
    ask("markers: version 0", markers((H, True, AT)), 0),
    *seen("markers: errors", MARKED),
    added("markers: add", H, AT),
    ask("markers: write", write(H, MARKED, 0, b"h1")),
    ask("markers: an older epoch", markers((H.with_epoch(-1), False, AT))),
    ask("markers: an older coordinator", markers((H, False, AT), coordinator_epoch=-1)),
    *seen("markers: refused", MARKED),
    ask("markers: a newer coordinator aborts", markers((H, False, AT), coordinator_epoch=5)),
    *seen("markers: aborted", MARKED),
    ask("markers: the producers", describe_producers(AT)),
    ask("markers: the former coordinator", markers((H, True, AT), coordinator_epoch=4)),
    ask("markers: two", markers((H, True, AT), (H, False, AT), coordinator_epoch=6)),
    ask("markers: of two producers", markers((H, True, AT), (Q, True, AT), coordinator_epoch=6)),
    ask("markers: a newer epoch", markers((H.with_epoch(3), False, AT), coordinator_epoch=6)),
    ask("markers: the epoch before", write(H, MARKED, 1)),
    ask("markers: the coordinator goes on", end(H, commit=True)),
    *seen("markers: the end", MARKED),
    ask("markers: read uncommitted", fetch(MARKED, {0: 0}), 12),
)

S = Producer(name="tx-s", since="hanging: a producer")
HANGING: tuple[Step, ...] = (
    # A leader that has seen a newer epoch rejects the marker of the coordinator.
    started(S.since, init(S.name)),
    added("hanging: add", S, {STUCK: (0,)}),
    ask("hanging: write", write(S, STUCK, 0, b"s1")),
    ask("hanging: a future epoch", write(S.with_epoch(1), STUCK, 0, b"s2")),
    *seen("hanging: a future epoch", STUCK),
    ask("hanging: commit", end(S, commit=True)),
    in_state("hanging: prepared", S.name, "PrepareCommit"),
    ask("hanging: a new producer", init(S.name)),
    ask("hanging: add to the next", add(S, {STUCK: (0,)}), 3),
    ask("hanging: commit again", end(S, commit=True)),
    ask("hanging: abort", end(S, commit=False)),
    ask("hanging: verify", add_many((S, True, {STUCK: (0,)}))),
    ask("hanging: the producers", describe_producers({STUCK: (0,)})),
    ask(
        "hanging: abort the partition",
        markers((S.with_epoch(1), False, {STUCK: (0,)}), coordinator_epoch=0),
    ),
    *seen("hanging: aborted", STUCK),
)


# The transactions of both producers are prepared, and their markers rejected. A restarted Kafka completes them only if
# it loads them before it knows these topics. So both brokers restart without the topics.
DELETED = ask("prepared: delete the topics", delete(MARKED, STUCK))
COMPLETED = tuple(
    in_state(f"restarted: the topic of {producer.name} is deleted", producer.name, "CompleteCommit")
    for producer in (H, S)
)

R = Producer(name="tx-r", since="open: a producer")
AFTER = R.after("restarted: init of the open transaction")
OPEN: Partitions = {PLAIN: (0,)}
UNFINISHED: tuple[Step, ...] = (
    started(R.since, init(R.name)),
    added("open: add", R, OPEN),
    ask("open: write", write(R, PLAIN, 0, b"r1")),
    ask("open: plain", produce(PLAIN, batch(b"plain"))),
    *seen("open", PLAIN),
)
AFTER_RESTART: tuple[Step, ...] = (
    in_state("restarted: the open transaction", R.name, "Ongoing"),
    *seen("restarted: open", PLAIN),
    ask("restarted: the producers of the open transaction", describe_producers(OPEN)),
    ask("restarted: verify the open transaction", add_many((R, True, OPEN))),
    ask("restarted: write to the open transaction", write(R, PLAIN, 1, b"r2")),
    ask("restarted: write it again", write(R, PLAIN, 1, b"r2")),
    ask("restarted: write the first again", write(R, PLAIN, 0, b"r1")),
    *ended("restarted: commit the open transaction", R, commit=True),
    *seen("restarted: committed", PLAIN),
    read_committed(f"restarted: {TOPIC}", TOPIC, 0),
    *(
        ask(f"restarted: producers of {topic}", describe_producers({topic: (0,)}))
        for topic in (TOPIC, MIXED)
    ),
    *COMPLETED,
    ask("restarted: describe", describe_transactions(P.name, Q.name, R.name)),
    started("restarted: init of the open transaction", init(R.name)),
    ask("restarted: add", add(AFTER, OPEN), 3),
    *ended("restarted: abort without records", AFTER, commit=False),
    *seen("restarted: aborted", PLAIN),
)


def files(when: str) -> tuple[Step, ...]:
    return tuple(
        Step(name=f"txn files {when}: {topic}", action=ListPartition(topic=topic))
        for topic in (TOPIC, MIXED, PLAIN)
    )


STEPS = (*PRODUCE, *INTERLEAVED, *MARKERS, *HANGING, DELETED, *UNFINISHED)
