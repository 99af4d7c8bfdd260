"""The analysis on Spark, for histories that do not fit the memory of one process.

    records ─► events, sorted by epoch ─► split_epoch ─► entries, sorted by topic ─► analyse_topic ─► rows

Spark sorts and distributes. The functions are those of reader.py and analysis.py. Entries are encoded with msgspec,
because pickle takes 0.3 ms for a field without a value (UNSET).
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.history.analysis import analyse_topic, assemble, build_elections, report_time
from barnabas.history.coordinator_event import is_malformed
from barnabas.history.event import AnyEvent, read_event
from barnabas.history.reader import BrokerSighting, EpochSummary, TopicEntry, split_epoch
from barnabas.history.words import Row

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame

EVENTS = "epoch int, sequence bigint, offset bigint, value binary"
ENTRIES = "topic string, epoch int, sequence bigint, item binary"
ROWS = "name string, item binary"
BATCH_ROWS = 10_000

encode_item = msgspec.msgpack.Encoder().encode
decode_item = msgspec.msgpack.Decoder(TopicEntry | EpochSummary | BrokerSighting).decode

Rows = Iterable[tuple[Any, ...]]


def analyse_on_spark(
    records: DataFrame, now: datetime, session_timeout_ms: int | None = None
) -> tuple[dict[str, list[Row]], int]:
    """Return the tables of `analyse` for records with `offset` and `value`, and the number of malformed records."""
    events = map_rows(records.select("offset", "value"), key_events, EVENTS).localCheckpoint()
    malformed = events.where("epoch is null").count()
    ordered = sort_groups(events.where("epoch is not null"), "epoch", "sequence", "offset")
    entries = map_rows(ordered, split_epochs, ENTRIES).localCheckpoint()
    facts = [decode_item(row["item"]) for row in entries.where("topic is null").collect()]
    elections = build_elections(each for each in facts if isinstance(each, EpochSummary))
    found: dict[str, list[Any]] = defaultdict(list)
    found["sightings"] = [each for each in facts if isinstance(each, BrokerSighting)]
    now = report_time(now, elections)
    ordered = sort_groups(entries.where("topic is not null"), "topic", "epoch", "sequence")
    analyse_groups = partial(analyse_topics, elections=elections, now=now)
    rows = map_rows(ordered, analyse_groups, ROWS).localCheckpoint()
    for row in rows.toLocalIterator():
        found[row["name"]].append(pickle.loads(row["item"]))
    return assemble(elections, found, now, session_timeout_ms), malformed


def sort_groups(rows: DataFrame, group: str, *order: str) -> DataFrame:
    """Bring the rows of each group together, in order."""
    return rows.repartition(group).sortWithinPartitions(group, *order)


def map_rows(rows: DataFrame, function: Callable[[Rows], Rows], schema: str) -> DataFrame:
    """Apply a function to the rows of each partition, as tuples."""

    def map_batches(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        import pyarrow

        types = {"int": pyarrow.int32(), "bigint": pyarrow.int64()}
        columns = [column.split() for column in schema.split(", ")]
        target = pyarrow.schema([(name, types.get(kind, kind)) for name, kind in columns])
        read = (
            row
            for batch in batches
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        )
        results = iter(function(read))
        while chunk := list(islice(results, BATCH_ROWS)):
            values_of = zip(zip(*chunk, strict=True), target.types, strict=True)
            arrays = [pyarrow.array(values, kind) for values, kind in values_of]
            yield pyarrow.RecordBatch.from_arrays(arrays, schema=target)

    return rows.mapInArrow(map_batches, schema)


# ---- in the tasks ---------------------------------------------------------------------------------------------


def key_events(records: Rows) -> Rows:
    """Yield the keys of events, offsets and values. A malformed record has only nulls. Skip events of coordinators."""
    for offset, value in records:
        event = read_event(value)
        if event is not None:
            yield *event.key, offset, value
        elif is_malformed(value):
            yield (None,) * 4


def split_epochs(rows: Rows) -> Rows:
    for _, group in groupby(rows, key=itemgetter(0)):
        events: Iterator[AnyEvent] = filter(None, (read_event(row[-1]) for row in group))
        for topic, item in split_epoch(events):
            sequence = None if isinstance(item, EpochSummary) else item.sequence
            yield topic, item.epoch, sequence, encode_item(item)


def analyse_topics(rows: Rows, *, elections: list[Row], now: datetime) -> Rows:
    for topic, group in groupby(rows, key=itemgetter(0)):
        entries = (decode_item(row[-1]) for row in group)
        for name, row in analyse_topic(topic, entries, elections, now):
            yield name, pickle.dumps(row)
