"""The data source `format("barnabas")`: topics as Spark sources and sinks.

    driver    options ─► lookup ─► planning ─► ranges      plans the batch
    task      range ─► fetching ─► Arrow                   reads one range

Spark creates the source, plans a batch, runs a stream reader and runs each task in separate processes. Objects that are
passed between these processes are small and picklable. A stream reader lives as long as one run of its query, and
stores the ids of its topics (topic_ids.py).
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
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
from barnabas.client.group_admin import GroupAdmin
from barnabas.errors import ApiError, BarnabasError, ConfigError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.spark.brief_errors import brief_errors
from barnabas.spark.cache import digest
from barnabas.spark.fetching import read_range
from barnabas.spark.filters import PushedFilters, parse_filters
from barnabas.spark.lookup import Lookup, connect
from barnabas.spark.options import (
    TRANSACTIONAL_ID,
    ReadOptions,
    WriteOptions,
    parse_read,
    parse_write,
)
from barnabas.spark.planning import (
    Bound,
    LogSpan,
    Offsets,
    check_covers,
    clamp,
    count_new,
    distinct_ends,
    find_losses,
    is_at_end,
    limit_rows,
    narrow_offsets,
    offsets_to_json,
    parse_offsets,
    plan_ranges,
    resolve_bound,
    should_trigger,
    split_ranges,
    timestamps_to_look_up,
)
from barnabas.spark.ranges import COLUMNS, DataLoss, OffsetRange, parse_fetch_settings
from barnabas.spark.schema import check_sink_schema, selected_columns, source_schema
from barnabas.spark.security_options import add_security_settings
from barnabas.spark.topic_ids import TopicIds
from barnabas.spark.worker_process import TaskObject, exempt_modules_from_gc
from barnabas.spark.writer import BatchWriter, StreamWriter, check_topic_exists

logger = logging.getLogger("barnabas.spark")

IDLE_PAUSE_S_MAX = 0.02
"""Spark polls an idle stream without a pause. This is the longest pause between two polls of the brokers."""

PUBLISH_TIMEOUT_S = 2.0
"""How long publishing the offsets of a batch may delay the next one."""

FILTERS_MODULE = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module with which Spark plans a batch if filter pushdown is enabled (filters.py)."""

issued_warnings: set[str] = set()
"""Digests of the warnings that this process has logged."""


class TopicSource(DataSource):  # type: ignore[misc]
    """Entry point for Spark: creates the readers and writers of a query from its options."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    @brief_errors
    def schema(self) -> StructType:
        """Return the schema. Options of a stream or a batch are valid: Spark does not pass the kind of the query."""
        try:
            options = parse_read(self.all_options(), streaming=True)
        except ConfigError:
            options = parse_read(self.all_options(), streaming=False)
        return source_schema(include_headers=options.include_headers)

    @brief_errors
    def reader(self, schema: StructType) -> BatchReader:
        options = parse_read(self.all_options(), streaming=False)
        return (FilteringReader if FILTERS_MODULE in sys.modules else BatchReader)(options, schema)

    @brief_errors
    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        return StreamReader(parse_read(self.all_options(), streaming=True), schema)

    @brief_errors
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        if overwrite:
            raise ConfigError("mode", "records cannot be overwritten; use mode('append')")
        options = self.sink_options(schema)
        if options.topic is not None:
            check_topic_exists(options, options.topic)
        return BatchWriter(options, schema.fieldNames())

    @brief_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Spark calls this for every batch and every commit, so it sends no request to the cluster."""
        options = self.sink_options(schema)
        if options.transactional_id is not None:
            why = "is for batch jobs; remove it: a stream has the id of its query"
            raise ConfigError(TRANSACTIONAL_ID, why)
        return StreamWriter(options, schema.fieldNames())

    def all_options(self) -> dict[str, str]:
        return add_security_settings(self.options)

    def sink_options(self, schema: StructType) -> WriteOptions:
        exempt_modules_from_gc()
        options = parse_write(self.all_options())
        check_sink_schema(schema, options.topic)
        warn_once(options.warnings, sorted(self.options.items()))
        return options


def warn_once(warnings: Sequence[str], options: object) -> None:
    """Log each warning once per query, which is identified by its options.

    Spark creates several readers or writers for one query, in several processes. All of them share Spark's scratch
    directory, where a marker file records a logged warning.
    """
    shared = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    for warning in warnings:
        marker = digest(warning, options)
        if marker in issued_warnings:
            continue
        issued_warnings.add(marker)
        try:
            if shared:
                Path(shared, f"barnabas-warned-{marker}").touch(exist_ok=False)
        except FileExistsError:
            continue
        except OSError:
            pass  # Without the marker, the warning may be logged again.
        logger.warning("barnabas: %s", warning)


# ---- tasks ------------------------------------------------------------------------------------------------------


class TopicReader(TaskObject):
    """Base of the batch and the stream reader: reads a range as Arrow batches in the schema that Spark expects."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.columns = selected_columns(schema)
        self.settings = parse_fetch_settings(
            options.client,
            tuple(name for name in COLUMNS if name in self.columns),
            fail_on_data_loss=options.fail_on_data_loss,
        )
        self.arrow_schema = to_arrow_schema(schema, timezone="UTC")

    @brief_errors
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        exempt_modules_from_gc()
        # Spark passes one partition without a value if the batch is empty.
        if partition.value is None:
            return
        try:
            for batch in read_range(partition.value, self.settings):
                if batch.schema.equals(self.arrow_schema):
                    yield batch
                else:
                    arrays = [batch.column(name) for name in self.columns]
                    yield pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)
        except DataLoss as loss:
            raise with_hint(loss) from None

    def input_partitions(self, ranges: list[OffsetRange]) -> list[InputPartition]:
        options = self.options
        parts = split_ranges(
            ranges, partitions_min=options.partitions_min, records_max=options.records_max
        )
        return [InputPartition(part) for part in parts]

    def look_up_bound(
        self, bound: Bound, lookup: Lookup, spans: Mapping[TopicPartition, LogSpan]
    ) -> dict[TopicPartition, int]:
        """Return the offsets of a bound, clamped to the logs. Calls `report` for offsets that are out of range."""
        check_covers(bound, spans)
        found = lookup.at_times(timestamps_to_look_up(bound, spans))
        # A time after the last record is an error only at the start.
        is_error = self.options.no_match_is_error and bound is self.options.starting
        offsets = resolve_bound(bound, spans, found, no_match_is_error=is_error)
        clamped, errors = clamp(bound.option, offsets, spans)
        self.report(errors)
        return clamped

    def report(self, problems: Sequence[BarnabasError]) -> None:
        """Raise the first problem. With failOnDataLoss=false, log all of them instead."""
        for problem in problems:
            if self.options.fail_on_data_loss:
                raise with_hint(problem)
            logger.warning(
                "barnabas: %s; continuing with the remaining records, because failOnDataLoss is false",
                problem,
            )


def with_hint(problem: BarnabasError) -> BarnabasError:
    if isinstance(problem, DataLoss):
        why = f"{problem.why}; set failOnDataLoss to false to continue with the remaining records"
        return DataLoss(problem.topic, problem.partition, problem.start, problem.end, why)
    if isinstance(problem, ConfigError):
        hint = "use an offset in range, or set failOnDataLoss to false to read the existing records"
        return ConfigError(problem.key, f"{problem.why}; {hint}")
    return problem


# ---- batch ------------------------------------------------------------------------------------------------------


class BatchReader(TopicReader, DataSourceReader):  # type: ignore[misc]
    filters = PushedFilters()

    @brief_errors
    def partitions(self) -> list[InputPartition]:
        """Plan the batch. Records that are written after this are not read."""
        warn_once(self.options.warnings, self.options)
        with closing(Lookup(self.options)) as lookup:
            spans = lookup.spans(lookup.partitions(strict=True))
            starts = self.look_up_bound(self.options.starting, lookup, spans)
            ends = self.look_up_bound(self.options.ending, lookup, spans)
            ranges = plan_ranges(*self.apply_filters(lookup, starts, ends), lookup.topic_id)
            return self.input_partitions(ranges)

    def apply_filters(
        self, lookup: Lookup, starts: Offsets, ends: Offsets
    ) -> tuple[Offsets, Offsets]:
        ends = {partition: at for partition, at in ends.items() if self.filters.includes(partition)}
        first, last = self.filters.offsets()
        starts, ends = narrow_offsets(starts, ends, first, last)
        timestamp = self.filters.least_timestamp()
        if timestamp is None:
            return starts, ends
        wanted = [partition for partition, end in ends.items() if end > starts[partition]]
        found = lookup.at_times(dict.fromkeys(wanted, timestamp))
        # There is no record at or after the timestamp where the offset is -1.
        ends = {partition: ends[partition] for partition, at in found.items() if at >= 0}
        return {partition: max(starts[partition], found[partition]) for partition in ends}, ends


class FilteringReader(BatchReader):
    """Batch reader that gets the filters of the query. Spark rejects it if filter pushdown is disabled."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Keep the filters to read less. Returns all of them, so that Spark applies them to the rows."""
        self.filters = parse_filters(filters)
        return filters


# ---- stream -----------------------------------------------------------------------------------------------------


class StreamReader(TopicReader, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.lookup_in_use: Lookup | None = None
        self.initial: dict[TopicPartition, int] | None = None
        """Start offsets of the query. None if the checkpoint has a finished batch."""
        self.has_polled = False
        self.topic_ids = TopicIds(options.topic_ids_location)
        self.has_loaded_ids = False
        self.recreated: dict[TopicPartition, int] = {}
        """Partitions of recreated topics → offset in the old topic, at which the next batch may still start."""
        self.polled: dict[TopicPartition, int] = {}
        """End offsets at the last poll."""
        self.is_available_now = False
        self.target: dict[TopicPartition, int] | None = None
        """With trigger(availableNow=True): the end offsets at which the query stops."""
        self.published: Offsets = {}
        """Offsets that were last committed to the group of publishOffsetsToGroup."""
        self.last_trigger_ms: int | None = None
        self.is_idle = False
        """Whether the last poll found no new records."""
        self.idle_pause_s = 0.0

    @property
    def lookup(self) -> Lookup:
        """Created on first use: tasks get a copy of the reader and do not need it."""
        if self.lookup_in_use is None:
            for warning in self.options.warnings:
                logger.warning("barnabas: %s", warning)
            self.lookup_in_use = Lookup(self.options)
        return self.lookup_in_use

    @brief_errors
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        # Spark calls this again to plan the first batch. Other offsets than before would lose records.
        if self.initial is None:
            spans = self.lookup.spans(self.lookup.partitions(strict=True))
            self.initial = self.look_up_bound(self.options.starting, self.lookup, spans)
            # A new query ignores the ids that another query may have stored in the directory.
            self.has_loaded_ids = True
            self.record_new_topics()
        return offsets_to_json(self.initial)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.is_available_now = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the maximum as limit, else the minimum. With both set, `must_wait` applies the minimum."""
        if self.options.rows_max is not None:
            return ReadMaxRows(self.options.rows_max)
        if self.options.rows_min is not None:
            return ReadMinRows(self.options.rows_min)
        return ReadAllAvailable()

    @brief_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = parse_offsets(start)
        self.publish(begin)
        self.topic_ids.forget_before(begin)
        ends: Offsets = self.poll(begin)
        starts = self.effective_starts(begin, ends)
        if not isinstance(limit, ReadAllAvailable) and self.must_wait(count_new(starts, ends)):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = limit_rows(starts, ends, limit.max_rows)
        return offsets_to_json(distinct_ends(begin, ends, starts))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return offsets_to_json(self.polled) or None

    @brief_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, finish = parse_offsets(start), parse_offsets(end)
        if not self.has_loaded_ids:
            # This is the first call: Spark repeats a batch that an earlier run of the query planned.
            self.lookup.refresh_topics(strict=False)
            self.check_topic_ids(begin, finish)
        if self.initial is not None and not self.has_polled:
            self.check_repeated_first_batch()
        starts = self.effective_starts(begin, finish)
        self.report(self.find_losses(begin, finish, starts))
        self.recreated = {}
        return self.input_partitions(plan_ranges(starts, finish, self.topic_ids.ids.get))

    def stop(self) -> None:
        if self.lookup_in_use is not None:
            self.lookup_in_use.close()

    # ---- offsets and topics ---------------------------------------------------------------------------------------

    def publish(self, done: Offsets) -> None:
        """Commit the end of the last batch to a consumer group, so that tools show the lag of this query.

        The query does not depend on the group. A failure is logged, and the next batch commits its own offsets.
        """
        group = self.options.publish_group
        if group is None or done == self.published:
            return
        self.published = done
        try:
            with connect(self.options.client, timeout_s=PUBLISH_TIMEOUT_S) as cluster:
                GroupAdmin(cluster).set_offsets(group, done)
        except ApiError as error:
            logger.warning("barnabas: offsets were not published to group %s: %s", group, error)

    def check_repeated_first_batch(self) -> None:
        """Report that the start of the first batch is unknown: Spark does not store the result of `initialOffset`.

        Called if an earlier run of the query planned its first batch, and did not finish it.
        """
        starting = self.options.starting
        if not is_at_end(starting):
            return
        why = "an earlier run ended in its first batch, and latest was another offset then"
        if self.options.fail_on_data_loss:
            hint = "use a new checkpointLocation, or set failOnDataLoss to false to skip the records in between"
            raise ConfigError(starting.option, f"{why}; {hint}")
        logger.warning("barnabas: %s: %s; the records in between are skipped", starting.option, why)

    def poll(self, begin: Offsets) -> dict[TopicPartition, int]:
        """Return the end offsets, or `target` once it is known. Pauses if the last poll found no new records."""
        self.has_polled = True
        if self.target is not None:
            return self.target
        if self.is_idle and not self.is_available_now:
            pause(self.idle_pause_s)
            self.idle_pause_s = min(self.idle_pause_s + 0.005, IDLE_PAUSE_S_MAX)
        else:
            self.idle_pause_s = 0.0
        before, self.polled = self.polled, self.end_offsets(begin)
        self.is_idle = self.polled == begin
        self.check_topic_ids(begin, before)
        if self.options.fail_on_data_loss:
            starts = self.effective_starts(begin, self.polled)
            self.report(self.find_losses(begin, self.polled, starts))
        if self.is_available_now:
            self.target = self.polled
        return self.polled

    def end_offsets(self, begin: Offsets) -> dict[TopicPartition, int]:
        """Return the end offset of every partition.

        If there are new records, the topics are refreshed first: one of them may have been recreated.
        """
        try:
            found = self.lookup.latest_after(begin, self.lookup.partitions(strict=False))
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        else:
            if found == begin:
                return found
        self.lookup.refresh_topics(strict=False)
        return self.lookup.latest_after(begin, self.lookup.partitions(strict=False))

    def check_topic_ids(self, begin: Offsets, before: Offsets) -> None:
        """Detect topics that were deleted and recreated. Reports their offsets from `begin` to `before` as lost."""
        if not self.has_loaded_ids:
            self.topic_ids.load(begin)
            self.has_loaded_ids = True
        for topic, known in list(self.topic_ids.ids.items()):
            found = self.lookup.topic_id(topic)
            if found is None or found == known:
                continue
            why = "the topic was deleted and created again"
            old = {partition: at for partition, at in begin.items() if partition.topic == topic}
            self.report(
                [
                    DataLoss(*partition, at, max(at, before.get(partition, at)), why)
                    for partition, at in old.items()
                ]
            )
            self.recreated.update(old)
            self.topic_ids.replace(topic, found, begin)
        self.record_new_topics()

    def record_new_topics(self) -> None:
        for topic in self.lookup.topics:
            found = self.lookup.topic_id(topic)
            if found is not None and topic not in self.topic_ids.ids:
                self.topic_ids.save(topic, found)

    def effective_starts(self, begin: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        """Return the start offsets of a batch. New partitions are read from their first record, regardless of
        startingOffsets: all their records were written after the query started."""
        new = [
            partition
            for partition in end
            if partition not in begin or self.recreated.get(partition) == begin[partition]
        ]
        return {**begin, **self.lookup.earliest(new)}

    def find_losses(self, begin: Offsets, end: Offsets, starts: Offsets) -> list[DataLoss]:
        """Return the lost offsets. Those of recreated topics are left out, because they were reported before."""
        remaining = {
            partition: at for partition, at in begin.items() if self.recreated.get(partition) != at
        }
        missing = {partition.topic for partition in remaining if partition not in end}
        deleted = self.lookup.deleted_topics(missing)
        return find_losses(remaining, end, starts, deleted)

    def must_wait(self, new: int) -> bool:
        """Return whether minOffsetsPerTrigger delays a batch with `new` offsets."""
        if self.options.rows_min is None or self.is_available_now:
            return False
        now = now_ms()
        waited_ms = float("inf") if self.last_trigger_ms is None else now - self.last_trigger_ms
        if not should_trigger(
            new, self.options.rows_min, waited_ms, self.options.trigger_delay_ms_max
        ):
            return True
        self.last_trigger_ms = now
        return False
