"""`format("barnabas")`: topics as Spark sources, and the way to the sink.

    driver    options ─► lookup ─► planning ─► ranges      what is to be read, decided once
    task      range ─► fetching ─► Arrow                   reads just that, and knows nothing else

Spark starts a process of its own for each of: making the source, planning a batch, running the source of a stream, each
task. What must survive from one to the next is picklable and small. A stream reader lives as long as a run of its
query, and remembers the ids of its topics (topic_ids.py).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from barnabas.client.blocking import now_ms, pause
from barnabas.errors import ApiError, BarnabasError, ConfigError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.spark.cache import digest
from barnabas.spark.fetching import read_range
from barnabas.spark.lookup import Lookup
from barnabas.spark.options import ReadOptions, parse_read, parse_write
from barnabas.spark.planning import (
    Bound,
    Offsets,
    Span,
    check_names_all,
    clamp,
    count_new,
    json_of,
    limited,
    losses,
    may_start,
    offsets_of,
    ranges,
    resolve,
    split,
    timestamps_of,
)
from barnabas.spark.ranges import COLUMNS, DataLoss, FetchSettings, OffsetRange
from barnabas.spark.schema import check_written, columns_read, source_schema
from barnabas.spark.topic_ids import TopicIds
from barnabas.spark.writer import BatchWriter, StreamWriter, check_topic_exists

log = logging.getLogger("barnabas.spark")

IDLE_PAUSE_S_MAX = 0.02
"""With nothing to read Spark asks again at once; a topic that stays silent is asked about this often."""

said: set[str] = set()


class TopicSource(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> StructType:
        """Spark does not say here whether a batch or a stream is meant: what both would refuse is refused already."""
        try:
            options = parse_read(self.options, streaming=True)
        except ConfigError:
            options = parse_read(self.options, streaming=False)
        return source_schema(include_headers=options.include_headers)

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(parse_read(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        return StreamReader(parse_read(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        options = parse_write(self.options)
        if overwrite:
            raise ConfigError("mode", "records cannot be overwritten; use mode('append')")
        check_written(schema, options.topic)
        warn(options.warnings, sorted(self.options.items()))
        if options.topic is not None:
            check_topic_exists(options, options.topic)
        return BatchWriter(options, schema.fieldNames())

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Made anew for every batch and for every commit, so nothing is asked of the cluster here."""
        options = parse_write(self.options)
        check_written(schema, options.topic)
        warn(options.warnings, sorted(self.options.items()))
        return StreamWriter(options, schema.fieldNames())


def warn(warnings: Sequence[str], options: object) -> None:
    """Once for the same options: Spark makes a reader or writer several times for one query, a sink even anew for every
    batch and in two processes. They share a directory, which Spark deletes when it ends."""
    shared = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    for warning in warnings:
        mark = digest(warning, options)
        if mark in said:
            continue
        said.add(mark)
        # Where no file can be made, twice is better than never.
        with suppress(OSError):
            if shared and not made_first(Path(shared, f"barnabas-said-{mark}")):
                continue
        log.warning("barnabas: %s", warning)


def made_first(path: Path) -> bool:
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


# ---- tasks ------------------------------------------------------------------------------------------------------


class RangePartition(InputPartition):  # type: ignore[misc]
    def __init__(self, offsets: OffsetRange) -> None:
        super().__init__(offsets)


class RangeReader:
    """What batch and stream share: a range becomes Arrow in the schema Spark expects."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        columns = columns_read(schema)
        self.options = options
        self.settings = FetchSettings(
            bootstrap_servers=options.bootstrap_servers,
            client=dict(options.client),
            columns=tuple(name for name in COLUMNS if name in columns),
            fail_on_data_loss=options.fail_on_data_loss,
        )
        self.settings.check()
        self.columns = columns
        self.arrow = to_arrow_schema(schema, timezone="UTC")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark hands out one partition without a value where there is nothing to read.
        if partition.value is None:
            return
        for batch in read_range(partition.value, self.settings):
            if batch.schema.equals(self.arrow):
                yield batch
            else:
                arrays = [batch.column(name) for name in self.columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def split(self, whole: list[OffsetRange]) -> list[RangePartition]:
        parts = split(
            whole,
            partitions_min=self.options.partitions_min,
            records_max=self.options.records_max,
        )
        return [RangePartition(part) for part in parts]

    def report(self, problems: Sequence[BarnabasError]) -> None:
        """Raise the first, or warn of all where the user has accepted to lose data."""
        for problem in problems:
            if self.options.fail_on_data_loss:
                raise with_hint(problem)
            log.warning(
                "barnabas: %s; going on with what there is, because failOnDataLoss is false",
                problem,
            )


def with_hint(problem: BarnabasError) -> BarnabasError:
    if isinstance(problem, DataLoss):
        why = f"{problem.why}; set failOnDataLoss to false to go on with what there is"
        return DataLoss(problem.topic, problem.partition, problem.start, problem.end, why)
    if isinstance(problem, ConfigError):
        hint = "ask for one of these, or set failOnDataLoss to false to read what there is"
        return ConfigError(problem.key, f"{problem.why}; {hint}")
    return problem


def look_up_bound(
    bound: Bound,
    lookup: Lookup,
    spans: Mapping[TopicPartition, Span],
    *,
    no_match_is_error: bool,
) -> tuple[dict[TopicPartition, int], list[ConfigError]]:
    """The offsets a bound stands for, and a word about each the log does not have."""
    check_names_all(bound, spans)
    found = lookup.at_times(timestamps_of(bound, spans))
    offsets = resolve(bound, spans, found, no_match_is_error=no_match_is_error)
    return clamp(bound.option, offsets, spans)


# ---- batch ------------------------------------------------------------------------------------------------------


class BatchReader(RangeReader, DataSourceReader):  # type: ignore[misc]
    def partitions(self) -> list[RangePartition]:
        """Both ends are fixed here, before the job: what is written while it runs is for the next one."""
        warn(self.options.warnings, self.options)
        lookup = Lookup(self.options)
        try:
            spans = lookup.spans(lookup.partitions(strict=True))
            starts, moved = look_up_bound(
                self.options.starting,
                lookup,
                spans,
                no_match_is_error=self.options.no_match_is_error,
            )
            self.report(moved)
            ends, moved = look_up_bound(self.options.ending, lookup, spans, no_match_is_error=False)
            self.report(moved)
            return self.split(ranges(starts, ends, lookup.topic_id))
        finally:
            lookup.close()


# ---- stream -----------------------------------------------------------------------------------------------------


class StreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.known_lookup: Lookup | None = None
        self.topics = TopicIds(options.topic_ids)
        self.has_recalled = False
        self.begun_anew: dict[TopicPartition, int] = {}
        """Partitions of topics created anew, and the offset of the old one at which a batch may still start."""
        self.seen: dict[TopicPartition, int] = {}
        self.is_available_now = False
        self.target: dict[TopicPartition, int] | None = None
        self.last_trigger_ms: int | None = None
        self.idle_pause_s = 0.0

    @property
    def lookup(self) -> Lookup:
        """Made when first used: the reader is also sent to tasks, which need none."""
        if self.known_lookup is None:
            for warning in self.options.warnings:
                log.warning("barnabas: %s", warning)
            self.known_lookup = Lookup(self.options)
        return self.known_lookup

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        spans = self.lookup.spans(self.lookup.partitions(strict=True))
        starts, moved = look_up_bound(
            self.options.starting,
            self.lookup,
            spans,
            no_match_is_error=self.options.no_match_is_error,
        )
        self.report(moved)
        # A new query: what another one may have left in the same place says nothing about this one.
        self.has_recalled = True
        self.notice_new_topics()
        return json_of(starts)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.is_available_now = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark takes one limit; where there are two, the smaller number is applied here as well."""
        if self.options.rows_max is not None:
            return ReadMaxRows(self.options.rows_max)
        if self.options.rows_min is not None:
            return ReadMinRows(self.options.rows_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = offsets_of(start)
        latest = self.latest(begin)
        if isinstance(limit, ReadAllAvailable):
            return json_of(latest)
        starts = self.starts_of(begin, latest)
        if self.must_wait(count_new(starts, latest)):
            return start
        if isinstance(limit, ReadMaxRows):
            return json_of(limited(starts, latest, limit.max_rows))
        return json_of(latest)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return json_of(self.seen) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        begin, finish = offsets_of(start), offsets_of(end)
        if not self.has_recalled:
            # A batch of an earlier run of the query is planned again.
            self.lookup.look_again(strict=False)
            self.check_same_topics(begin, finish)
        starts = self.starts_of(begin, finish)
        self.report(self.losses(begin, finish, starts))
        self.begun_anew = {}
        return self.split(ranges(starts, finish, self.topics.ids.get))

    def commit(self, end: dict[str, Any]) -> None:
        """Spark keeps the offsets; nothing of them is kept in the cluster."""

    def stop(self) -> None:
        if self.known_lookup is not None:
            self.known_lookup.close()

    # ---- what there is --------------------------------------------------------------------------------------------

    def latest(self, begin: Offsets) -> dict[TopicPartition, int]:
        if self.target is not None:
            return self.target
        if self.seen == begin and not self.is_available_now:
            pause(self.idle_pause_s)
            self.idle_pause_s = min(self.idle_pause_s + 0.005, IDLE_PAUSE_S_MAX)
        else:
            self.idle_pause_s = 0.0
        before, self.seen = self.seen, self.ends_now(begin)
        self.check_same_topics(begin, before)
        if self.options.fail_on_data_loss:
            starts = self.starts_of(begin, self.seen)
            self.report(self.losses(begin, self.seen, starts))
        if self.is_available_now:
            self.target = self.seen
        return self.seen

    def ends_now(self, begin: Offsets) -> dict[TopicPartition, int]:
        """Where every partition ends. Before something is read, the topics are looked at anew: what a name meant a
        moment ago may have been deleted since."""
        try:
            found = self.lookup.latest(self.lookup.partitions(strict=False))
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        else:
            if found == begin:
                return found
        self.lookup.look_again(strict=False)
        return self.lookup.latest(self.lookup.partitions(strict=False))

    def check_same_topics(self, begin: Offsets, before: Offsets) -> None:
        """A topic that was deleted and created anew starts at 0 again, and what was left of the old one is gone."""
        if not self.has_recalled:
            self.topics.recall(begin)
            self.has_recalled = True
        for topic, known in list(self.topics.ids.items()):
            found = self.lookup.topic_id(topic)
            if found is None or found == known:
                continue
            why = "the topic was deleted and created anew"
            old = {partition: at for partition, at in begin.items() if partition.topic == topic}
            self.report(
                [
                    DataLoss(
                        topic, partition.partition, at, max(at, before.get(partition, at)), why
                    )
                    for partition, at in old.items()
                ]
            )
            self.begun_anew.update(old)
            self.topics.replace(topic, found, begin)
        self.notice_new_topics()

    def notice_new_topics(self) -> None:
        for topic in self.lookup.topics:
            found = self.lookup.topic_id(topic)
            if found is not None and topic not in self.topics.ids:
                self.topics.keep(topic, found)

    def starts_of(self, begin: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        """Where a batch that begins at `begin` really begins: partitions that appeared since are read from their first
        record, whatever startingOffsets says, for all of it was written after the query began."""
        fresh = [
            partition
            for partition in end
            if partition not in begin or self.begun_anew.get(partition) == begin[partition]
        ]
        return {**begin, **(self.lookup.earliest(fresh) if fresh else {})}

    def losses(self, begin: Offsets, end: Offsets, starts: Offsets) -> list[DataLoss]:
        """Without those of topics created anew, which were told already."""
        still = {
            partition: at for partition, at in begin.items() if self.begun_anew.get(partition) != at
        }
        return losses(still, end, starts)

    def must_wait(self, new: int) -> bool:
        if self.options.rows_min is None or self.is_available_now:
            return False
        now = now_ms()
        waited_ms = float("inf") if self.last_trigger_ms is None else now - self.last_trigger_ms
        if not may_start(new, self.options.rows_min, waited_ms, self.options.trigger_delay_ms_max):
            return True
        self.last_trigger_ms = now
        return False
