"""Planning of a batch: from the bounds in the options and the offsets in the cluster to offset ranges. Pure.

    Bound  ──resolve_bound──►  Offsets  ──limit_rows──►  Offsets  ──plan_ranges──►  [OffsetRange]  ──split_ranges──►  …

The JSON form of offsets is that of Spark's Kafka source, so options and checkpoints are compatible:
{"orders":{"0":23,"1":-1}}, where -1 means latest and -2 means earliest.

Lost offsets are never skipped silently. Functions that detect them return DataLoss, and the caller raises or warns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

from barnabas.errors import ConfigError
from barnabas.model import TopicPartition
from barnabas.spark.ranges import DELETED_TOPIC, DataLoss, OffsetRange

EARLIEST = -2
LATEST = -1

Offsets = Mapping[TopicPartition, int]


# ---- bounds -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EarliestOrLatest:
    """Every partition at its earliest or latest offset: EARLIEST or LATEST."""

    option: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOffsets:
    option: str
    offsets: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTime:
    """The first record of every partition at or after this timestamp (milliseconds)."""

    option: str
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTimes:
    option: str
    timestamps: Mapping[TopicPartition, int]


Bound = EarliestOrLatest | AtOffsets | AtTime | AtTimes
"""Start or end of a query. `option` is the Spark option with the bound, for error messages."""


# ---- offsets as JSON --------------------------------------------------------------------------------------------


def parse_offsets_json(
    option: str, text: str, *, least: int = EARLIEST
) -> dict[TopicPartition, int]:
    """Parse offsets, or timestamps (least=0), from an option. Raises ConfigError with an example."""
    example = '{"orders":{"0":23,"1":-1}}' if least < 0 else '{"orders":{"0":1700000000000}}'
    try:
        decoded = json.loads(text)
    except ValueError as error:
        why = f"is not JSON ({error}); write it like {example}"
        raise ConfigError(option, f"{abbreviate(text)} {why}") from None
    try:
        return parse_offsets(decoded, least=least)
    except ValueError as error:
        raise ConfigError(option, f"{error}; write it like {example}") from None


def parse_offsets(decoded: Any, *, least: int = EARLIEST) -> dict[TopicPartition, int]:
    """Convert decoded JSON to offsets. Raises ValueError for anything but topic → partition → integer >= `least`."""
    if not isinstance(decoded, dict):
        raise ValueError(f"{abbreviate(json.dumps(decoded))} is not an object of topics")
    offsets = {}
    for topic, partitions in decoded.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"{topic!r} must have an object of partitions")
        for partition, offset in partitions.items():
            if not (partition.isascii() and partition.isdigit()):
                raise ValueError(f"{partition!r} is not a partition number of {topic}")
            if not isinstance(offset, int) or isinstance(offset, bool) or offset < least:
                why = f"{json.dumps(offset)} is not a valid number for {topic}-{partition}"
                raise ValueError(why)
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def offsets_to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Convert offsets to their JSON form, sorted. Spark compares the text, so equal offsets must give equal text."""
    found: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return found


def abbreviate(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


# ---- resolving bounds -------------------------------------------------------------------------------------------


class LogSpan(NamedTuple):
    """The offsets of a partition's log: from `earliest` up to, not including, `latest`."""

    earliest: int
    latest: int


def is_at_end(bound: Bound) -> bool:
    """Return whether a part of the bound is the end of a log at the time of the look-up."""
    match bound:
        case EarliestOrLatest(offset=offset):
            return offset == LATEST
        case AtOffsets(offsets=offsets):
            return LATEST in offsets.values()
        case _:
            return False


def check_covers(bound: Bound, partitions: Iterable[TopicPartition]) -> None:
    """Raise ConfigError if the bound names partitions, but not exactly the `partitions` that are read."""
    match bound:
        case AtOffsets(offsets=given) | AtTimes(timestamps=given):
            named, read = set(given), set(partitions)
        case _:
            return
    if missing := sorted(read - named):
        why = f"does not name {summarize_partitions(missing)}; name every partition that is read"
        hint = ", with -1 for latest or -2 for earliest" if isinstance(bound, AtOffsets) else ""
        raise ConfigError(bound.option, why + hint)
    if unknown := sorted(named - read):
        why = f"names partitions that are not read: {summarize_partitions(unknown)}; remove them"
        raise ConfigError(bound.option, why)


def timestamps_to_look_up(
    bound: Bound, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the timestamps to look up before `resolve_bound`. Empty if the bound has none."""
    match bound:
        case AtTime(timestamp=timestamp):
            return dict.fromkeys(partitions, timestamp)
        case AtTimes(timestamps=timestamps):
            return dict(timestamps)
        case _:
            return {}


def resolve_bound(
    bound: Bound,
    spans: Mapping[TopicPartition, LogSpan],
    found: Offsets,
    *,
    no_match_is_error: bool,
) -> dict[TopicPartition, int]:
    """Return the offset of each partition.

    `found` holds the offsets that were looked up for timestamps; -1 if there is no record at or after the timestamp.
    Then the latest offset is used, or ConfigError is raised if `no_match_is_error`.
    """
    match bound:
        case EarliestOrLatest(offset=offset):
            requested: Offsets = dict.fromkeys(spans, offset)
        case AtOffsets(offsets=offsets):
            requested = offsets
        case _:
            requested = found
            if no_match_is_error:
                check_matched(bound, found)
    offsets = {}
    for partition, span in spans.items():
        special = {EARLIEST: span.earliest, LATEST: span.latest}
        offsets[partition] = special.get(requested[partition], requested[partition])
    return offsets


def check_matched(bound: AtTime | AtTimes, found: Offsets) -> None:
    unmatched = [partition for partition, offset in sorted(found.items()) if offset == LATEST]
    if unmatched:
        requested = timestamps_to_look_up(bound, unmatched)
        time = requested[unmatched[0]]
        subject = f"{summarize_partitions(unmatched)} {has_or_have(unmatched)}"
        why = f"{subject} no record at or after {time} (milliseconds)"
        hint = "use an earlier time, or set startingOffsetsByTimestampStrategy to latest"
        raise ConfigError(bound.option, f"{why}; {hint}")


def clamp(
    option: str, offsets: Offsets, spans: Mapping[TopicPartition, LogSpan]
) -> tuple[dict[TopicPartition, int], list[ConfigError]]:
    """Clamp offsets to the logs. Returns them, and an error for each offset that was out of range."""
    clamped, errors = {}, []
    for partition, offset in offsets.items():
        span = spans[partition]
        clamped[partition] = min(max(offset, span.earliest), span.latest)
        if clamped[partition] != offset:
            log = f"the log has {span.earliest} to {span.latest}"
            errors.append(
                ConfigError(option, f"offset {offset} of {partition} is out of range; {log}")
            )
    return clamped, errors


def has_or_have(names: Sequence[object]) -> str:
    return "has" if len(names) == 1 else "have"


def summarize_partitions(partitions: Sequence[TopicPartition]) -> str:
    """Return up to three names: orders-0, orders-1, orders-2 and 14 more."""
    shown = ", ".join(map(str, partitions[:3]))
    return shown if len(partitions) <= 3 else f"{shown} and {len(partitions) - 3} more"


# ---- one micro-batch --------------------------------------------------------------------------------------------


def count_new(start: Offsets, latest: Offsets) -> int:
    """Return the number of offsets from `start` to `latest`, over all partitions."""
    return sum(max(0, end - start.get(partition, 0)) for partition, end in latest.items())


def limit_rows(start: Offsets, latest: Offsets, rows_max: int) -> dict[TopicPartition, int]:
    """Return end offsets for a batch of about `rows_max` offsets, shared in proportion to the lag of each partition.

    If partition a has a lag of 100, b of 300, and the limit is 40, the batch has 10 offsets of a and 30 of b. Every
    partition with a lag gets at least one offset, so the sum may exceed the limit.
    """
    sizes = {partition: end - start[partition] for partition, end in latest.items()}
    total = sum(size for size in sizes.values() if size > 0)
    if total == 0:
        return dict(latest)
    ends = dict(latest)
    for partition, size in sizes.items():
        if size > 0:
            # Integer arithmetic: offsets can exceed the exact range of a float.
            share = max(rows_max * size // total, 1)
            ends[partition] = min(ends[partition], start[partition] + share)
    return ends


def distinct_ends(begin: Offsets, ends: Offsets, starts: Offsets) -> Offsets:
    """Return `ends`, or one offset less if they equal `begin` although there are records from `starts` on.

    This happens if a topic was recreated. Spark plans no batch for ends that are equal to the last ones.
    """
    if ends != begin:
        return ends
    for partition, end in ends.items():
        if starts[partition] < end:
            return {**ends, partition: end - 1}
    return ends


def should_trigger(new: int, rows_min: int, waited_ms: float, wait_ms_max: int) -> bool:
    """Apply minOffsetsPerTrigger and maxTriggerDelay: whether a batch may start now."""
    return new >= rows_min or waited_ms >= wait_ms_max


def find_losses(
    start: Offsets, end: Offsets, earliest: Offsets, deleted: Container[str] = ()
) -> list[DataLoss]:
    """Return the offsets that a micro-batch from `start` to `end` can no longer read.

    Partitions that are not in `start` are new and should be read from offset 0. Offsets before `earliest` are lost.
    `deleted` are topics that the query selects and that do not exist.
    """
    found = []
    for partition, begin in sorted(start.items()):
        if partition not in end:
            why = (
                DELETED_TOPIC
                if partition.topic in deleted
                else "the topic was deleted, or the query does not select it any more"
            )
            found.append(DataLoss(*partition, begin, begin, why))
        elif end[partition] < begin:
            why = f"the log ends at {end[partition]} now; the topic was created again or truncated"
            found.append(DataLoss(*partition, end[partition], begin, why))
    for partition in sorted(end.keys() - start.keys()):
        first = earliest.get(partition, 0)
        if first > 0:
            why = "they were deleted before this query found the new partition"
            found.append(DataLoss(*partition, 0, first, why))
    return found


# ---- ranges -----------------------------------------------------------------------------------------------------


def plan_ranges(
    start: Offsets, end: Offsets, topic_ids: Callable[[str], UUID | None]
) -> list[OffsetRange]:
    """Return one range for each partition with records to read, ordered by partition."""
    return [
        OffsetRange(
            topic=partition.topic,
            partition=partition.partition,
            start=start[partition],
            end=end[partition],
            topic_id=topic_ids(partition.topic),
        )
        for partition in sorted(end)
        if partition in start and end[partition] > start[partition]
    ]


def narrow_offsets(
    start: Offsets, end: Offsets, first: int, last: int
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Leave out the offsets before `first` and after `last`. Ranges may become empty."""
    starts = {partition: max(at, first) for partition, at in start.items()}
    ends = {partition: min(at, last + 1) for partition, at in end.items()}
    return starts, ends


def split_ranges(
    ranges: Sequence[OffsetRange], *, partitions_min: int | None, records_max: int | None
) -> list[OffsetRange]:
    """Apply minPartitions and maxRecordsPerPartition: split long ranges, so that several tasks read them.

    First, ranges longer than `records_max` are split. If there are still fewer than `partitions_min` ranges, the longer
    ones are split further, in proportion to their lengths. Because of rounding, the result may have slightly more or
    fewer ranges than `partitions_min`.
    """
    parts = [each for each in ranges if each.size > 0]
    if records_max is not None:
        parts = [
            part for each in parts for part in split_range(each, math.ceil(each.size / records_max))
        ]
    if partitions_min is None or partitions_min <= len(parts):
        return parts
    total = sum(part.size for part in parts)
    unsplit = [part for part in parts if count_pieces(part, total, partitions_min) == 1]
    rest = total - sum(part.size for part in unsplit)
    wanted = max(partitions_min - len(unsplit), 1)
    return [
        piece
        for part in parts
        for piece in split_range(part, 1 if part in unsplit else count_pieces(part, rest, wanted))
    ]


def count_pieces(part: OffsetRange, total: int, wanted: int) -> int:
    """Return how many of the `wanted` pieces of `total` offsets `part` gets: at least one."""
    return max(1, math.floor(part.size / total * wanted + 0.5))


def split_range(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Split a range into `count` ranges, or one per offset if it is shorter. Their lengths differ by at most one."""
    count = max(1, min(count, whole.size))
    edges = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [replace(whole, start=begin, end=end) for begin, end in pairwise(edges)]
