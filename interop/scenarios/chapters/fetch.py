"""Fetch, its sessions, ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from barnabas.batch.compression import Compression
from barnabas.wire.apis import APIS
from barnabas.wire.messages.delete_records import DeleteRecordsRequest
from barnabas.wire.messages.fetch import FetchRequest
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from interop.scenarios.requests import (
    THEN,
    ask,
    batch,
    create,
    delete_records,
    epoch_end,
    fetch,
    list_offsets,
    new_topic,
    produce,
)
from interop.scenarios.step import RequestContext, Step

UNKNOWN_ID = UUID("00000000-0000-4000-8000-00000000beef")
VERSIONS = APIS[FetchRequest.API_KEY].versions
BATCHES_SINCE = 4
BY_ID_SINCE = 13
RequestBuilder = Callable[[RequestContext], FetchRequest]
MANY = {"segment.bytes": "300", "segment.index.bytes": "80", "index.interval.bytes": "100"}


def version_name(version: int) -> str:
    """The label of a version. Old versions know no record batches."""
    return f"{'old ' if version < BATCHES_SINCE else ''}version {version}"


def by_id(topic: str, offsets: dict[int, int], session_epoch: int = -1) -> RequestBuilder:
    return lambda context: fetch(
        topic, offsets, topic_id=context.topic_id(topic), session_epoch=session_epoch
    )


def in_session(
    step: str, epoch: int, offsets: Mapping[int, int] | None = None, forget: Sequence[int] = ()
) -> RequestBuilder:
    """A fetch in the session that an earlier step opened, with the next epoch."""
    return lambda context: fetch(
        "f",
        offsets or {},
        session_id=context.answer(step).session_id,
        session_epoch=epoch,
        forget=forget,
    )


SETUP = (
    ask(
        "fetch: topics",
        create(
            new_topic("f", 3),
            new_topic("empty"),
            new_topic("many", configs=MANY),
            new_topic("squeezed"),
            new_topic("untimed"),
        ),
    ),
    *(
        ask(
            f"fetch: batch {number} to be fetched",
            produce("f", batch(b"a%d" % number, b"b%d" % number, timestamp=THEN + 10 * number)),
        )
        for number in range(5)
    ),
    ask("fetch: one for partition 1", produce("f", batch(b"other"), partition=1)),
    *(
        ask(
            f"fetch: segment {number}",
            produce("many", batch(b"x" * 100, timestamp=THEN + 1000 * (number % 7))),
        )
        for number in range(12)
    ),
    ask(
        "fetch: a squeezed batch",
        produce("squeezed", batch(*(b"s%d" % n for n in range(20)), compression=Compression.GZIP)),
    ),
    ask(
        "fetch: a batch in zstd",
        produce("squeezed", batch(*(b"z%d" % n for n in range(20)), compression=Compression.ZSTD)),
    ),
    ask("fetch: no timestamp", produce("untimed", batch(b"x", timestamp=-1))),
)

FETCH = (
    *(
        ask(f"fetch: {version_name(version)}", fetch("f", {0: 3}), version)
        for version in VERSIONS
        if version < BY_ID_SINCE
    ),
    *(
        ask(f"fetch: version {version}", by_id("f", {0: 3}), version)
        for version in VERSIONS
        if version >= BY_ID_SINCE
    ),
    *(
        ask(
            f"fetch: read committed, version {version}",
            fetch("f", {0: 0}, isolation_level=1),
            version,
        )
        for version in (4, 11, 12)
    ),
    *(
        ask(f"fetch: from {what}", fetch("f", {0: offset}), 12)
        for what, offset in (
            ("the middle of a batch", 5),
            ("the end", 10),
            ("beyond the end", 11),
            ("far beyond", 1 << 40),
            ("-1", -1),
            ("-2", -2),
        )
    ),
    ask("fetch: an unknown topic", fetch("nobody", {0: 0}), 12),
    ask("fetch: an unknown partition", fetch("f", {7: 0}), 12),
    ask("fetch: a negative partition", fetch("f", {-1: 0}), 12),
    ask("fetch: a bad name", fetch("a/b", {0: 0}), 12),
    ask("fetch: an unknown id", fetch("", {0: 0}, topic_id=UNKNOWN_ID), 13),
    ask("fetch: the id 0", fetch("", {0: 0}), 13),
    ask("fetch: an unknown partition by id", by_id("f", {7: 0}), 13),
    ask("fetch: nothing", fetch("f", {}), 12),
    ask("fetch: an empty topic", fetch("empty", {0: 0}), 12),
    ask("fetch: beyond an empty topic", fetch("empty", {0: 1}), 12),
    ask("fetch: at the end, waiting", fetch("f", {0: 10}, max_wait_ms=50), 12),
    ask(
        "fetch: more than there is, waiting",
        fetch("f", {0: 0}, max_wait_ms=50, min_bytes=1 << 20),
        12,
    ),
    ask(
        "fetch: out of range, waiting",
        fetch("f", {0: 99}, max_wait_ms=20_000, min_bytes=1 << 20),
        12,
    ),
    ask(
        "fetch: an old segment, waiting",
        fetch("many", {0: 0}, max_wait_ms=20_000, min_bytes=1 << 20),
        12,
    ),
    *(
        ask(f"fetch: max bytes {size}", fetch("f", {0: 0, 1: 0}, max_bytes=size), 12)
        for size in (0, 1, 100, 200)
    ),
    *(
        ask(
            f"fetch: partition max bytes {size}",
            fetch("f", {0: 0, 1: 0}, partition_max_bytes=size),
            12,
        )
        for size in (0, 1, 100, 200)
    ),
    *(
        ask(
            f"fetch: partition max bytes 100, {version_name(version)}",
            fetch("f", {0: 0}, partition_max_bytes=100),
            version,
        )
        for version in (0, 2, 3)
    ),
    ask("fetch: over a segment's end", fetch("many", {0: 1}), 12),
    *(
        ask(f"fetch: leader epoch {epoch}", fetch("f", {0: 0}, current_leader_epoch=epoch), 12)
        for epoch in (0, 1, 99)
    ),
    *(
        ask(f"fetch: squeezed, {version_name(version)}", fetch("squeezed", {0: 0}), version)
        for version in (0, 2, 4, 9, 10)
    ),
    *(
        ask(f"fetch: only zstd, {version_name(version)}", fetch("squeezed", {0: 20}), version)
        for version in (1, 3, 9, 10)
    ),
    ask("fetch: by a broker that is no replica", fetch("f", {0: 0}), 12),
    ask(
        "fetch: as broker 7, version 12",
        FetchRequest(replica_id=7, max_wait_ms=0, min_bytes=1, topics=fetch("f", {0: 0}).topics),
        12,
    ),
    ask(
        "fetch: as a debugging consumer",
        FetchRequest(replica_id=-2, max_wait_ms=0, min_bytes=1, topics=fetch("f", {0: 0}).topics),
        12,
    ),
)

ALL = {0: 0, 1: 0, 2: 0}
AT_END = {0: 10, 1: 1, 2: 0}
SESSIONS = (
    ask("session: opened", fetch("f", ALL, session_epoch=0), 12),
    ask("session: with nothing in it", fetch("f", {}, session_epoch=0), 12),
    ask("session: again from the start", in_session("session: opened", 1), 12),
    ask("session: moved to the end", in_session("session: opened", 2, offsets=AT_END), 12),
    ask("session: no news", in_session("session: opened", 3), 12),
    ask("session: a batch", produce("f", batch(b"news"), partition=2)),
    ask("session: news", in_session("session: opened", 4), 12),
    ask("session: forgetting", in_session("session: opened", 5, forget=(0,)), 12),
    ask("session: an error", in_session("session: opened", 6, offsets={1: 99}), 12),
    ask("session: the error again", in_session("session: opened", 7), 12),
    ask("session: an unknown partition", in_session("session: opened", 8, offsets={9: 0}), 12),
    ask("session: an epoch left out", in_session("session: opened", 10), 12),
    ask("session: an epoch again", in_session("session: opened", 8), 12),
    ask("session: changed to ids", in_session("session: opened", 9), 13),
    ask("session: closed", in_session("session: opened", -1, offsets={1: 0}), 12),
    ask("session: after it", in_session("session: opened", 9), 12),
    ask("session: an unknown one", fetch("f", {0: 0}, session_id=77, session_epoch=1), 12),
    ask(
        "session: an unknown one to be closed",
        fetch("f", {0: 0}, session_id=77, session_epoch=-1),
        12,
    ),
    ask("session: none, in epoch 1", fetch("f", {0: 0}, session_id=0, session_epoch=1), 12),
    ask("session: with an unknown topic", fetch("nobody", {0: 0}, session_epoch=0), 12),
    ask("session: with an unknown id", fetch("", {0: 0}, topic_id=UNKNOWN_ID, session_epoch=0), 13),
    ask("session: opened by id", by_id("f", ALL, session_epoch=0), 13),
    ask("session: to be emptied", fetch("f", ALL, session_epoch=0), 12),
    ask(
        "session: forgetting everything",
        in_session("session: to be emptied", 1, forget=(0, 1, 2)),
        12,
    ),
    ask("session: that was emptied", in_session("session: to be emptied", 2), 12),
)

SPECIAL = (-1, -2, -3, -4, -5, -6)
TIMES = (0, THEN, THEN + 1, THEN + 25, THEN + 40, THEN + 41, THEN + 6000, THEN + 7000)
OFFSETS = (
    *(
        ask(f"offsets: {special} of {topic}", list_offsets(topic, special))
        for special in SPECIAL
        for topic in ("f", "empty", "many", "untimed")
    ),
    *(
        ask(f"offsets: {special}, version {version}", list_offsets("many", special), version)
        for special in SPECIAL
        for version in APIS[ListOffsetsRequest.API_KEY].versions
        if version >= 1
    ),
    *(
        ask(f"offsets: at {time} of {topic}", list_offsets(topic, time))
        for time in TIMES
        for topic in ("f", "many", "empty")
    ),
    *(
        ask(f"offsets: version 0, {count} at {time}", list_offsets("many", time, count=count), 0)
        for count in (0, 1, 3, 100)
        for time in (-1, -2)
    ),
    ask("offsets: version 0 of an empty topic", list_offsets("empty", -1, count=5), 0),
    ask("offsets: version 0, long ago", list_offsets("many", THEN, count=5), 0),
    ask("offsets: version 0 of an unknown topic", list_offsets("nobody", -1), 0),
    ask("offsets: an unknown topic", list_offsets("nobody", -1)),
    ask("offsets: an unknown partition", list_offsets("f", -1, partition=9)),
    ask("offsets: read committed", list_offsets("f", -1, isolation_level=1)),
    *(
        ask(f"offsets: leader epoch {epoch}", list_offsets("f", -1, epoch=epoch))
        for epoch in (0, 1, 99)
    ),
    ask(
        "offsets: a partition twice",
        ListOffsetsRequest(
            topics=(
                ListOffsetsTopic(
                    "f",
                    (ListOffsetsPartition(0, timestamp=-1), ListOffsetsPartition(0, timestamp=-2)),
                ),
            )
        ),
    ),
    *(
        ask(f"epoch end: of {epoch}, version {version}", epoch_end("f", epoch), version)
        for epoch in (-1, 0, 5)
        for version in APIS[OffsetForLeaderEpochRequest.API_KEY].versions
    ),
    ask("epoch end: of an empty topic", epoch_end("empty", 0)),
    ask("epoch end: an unknown topic", epoch_end("nobody", 0)),
    ask("epoch end: an unknown partition", epoch_end("f", 0, partition=9)),
    *(ask(f"epoch end: in epoch {epoch}", epoch_end("f", 0, current=epoch)) for epoch in (0, 1)),
)

DELETED = (
    ask("delete records: beyond the end", delete_records("f", 11)),
    ask("delete records: -2", delete_records("f", -2)),
    ask("delete records: an unknown topic", delete_records("nobody", 1)),
    ask("delete records: an unknown partition", delete_records("f", 1, partition=9)),
    ask("delete records: of a compacted topic", delete_records("compact", 1)),
    ask("delete records: nothing", delete_records("f", 0)),
    *(
        ask(
            f"delete records: up to {3 + version}, version {version}",
            delete_records("f", 3 + version),
            version,
        )
        for version in APIS[DeleteRecordsRequest.API_KEY].versions
    ),
    ask("delete records: below the start", delete_records("f", 2)),
    ask("delete records: several segments", delete_records("many", 5)),
    ask("delete records: everything", delete_records("f", -1, partition=1)),
    ask("delete records: of an empty topic", delete_records("empty", -1)),
    *(ask(f"deleted: fetch from {offset}", fetch("f", {0: offset}), 12) for offset in (0, 4, 5, 6)),
    ask("deleted: fetch where all is gone", fetch("f", {1: 1}), 12),
    *(
        ask(f"deleted: offset at {time}", list_offsets("f", time))
        for time in (-1, -2, -3, -4, THEN)
    ),
    ask("deleted: start where all is gone", list_offsets("f", -2, partition=1)),
    ask("deleted: version 0", list_offsets("many", -1, count=100), 0),
    ask("deleted: a produce tells the start", produce("f", batch(b"later"))),
    ask("deleted: fetch of several segments", fetch("many", {0: 5}), 12),
    ask("deleted: end of the epoch", epoch_end("f", 0)),
)

STEPS: tuple[Step, ...] = (*SETUP, *FETCH, *SESSIONS, *OFFSETS, *DELETED)
