"""Which offsets are read: from what a user asked for and what the cluster has, to the ranges of one batch. Pure.

    Bound  ──resolve──►  Offsets  ──limited──►  Offsets  ──ranges──►  [OffsetRange]  ──split──►  [OffsetRange]

Offsets are written as Spark's own Kafka source writes them, so that checkpoints, progress reports and options can be
moved between the two: {"orders":{"0":23,"1":-1}}, where -1 stands for latest and -2 for earliest.

What the cluster no longer has is never skipped in silence: functions that can meet it return it as DataLoss beside
their result, and the caller raises or warns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

from barnabas.errors import ConfigError
from barnabas.model import TopicPartition
from barnabas.spark.ranges import DataLoss, OffsetRange

EARLIEST = -2
LATEST = -1

Offsets = Mapping[TopicPartition, int]


# ---- what a user may ask for ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Everywhere:
    """Every partition at its earliest or its latest offset."""

    option: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOffsets:
    option: str
    offsets: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTime:
    """The first record of every partition that is not older than this."""

    option: str
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTimes:
    option: str
    timestamps: Mapping[TopicPartition, int]


Bound = Everywhere | AtOffsets | AtTime | AtTimes


# ---- offsets as JSON --------------------------------------------------------------------------------------------


def offsets_of_json(option: str, text: str, *, least: int = EARLIEST) -> dict[TopicPartition, int]:
    """ConfigError that shows what is expected, for anything that is not topic → partition → number."""
    example = '{"orders":{"0":23,"1":-1}}' if least < 0 else '{"orders":{"0":1700000000000}}'
    try:
        found = json.loads(text)
    except ValueError as error:
        why = f"is not JSON ({error}); write it like {example}"
        raise ConfigError(option, f"{shortened(text)} {why}") from None
    try:
        return offsets_of(found, least=least)
    except ValueError as error:
        raise ConfigError(option, f"{error}; write it like {example}") from None


def offsets_of(found: Any, *, least: int = EARLIEST) -> dict[TopicPartition, int]:
    """ValueError that says what is wrong."""
    if not isinstance(found, dict):
        raise ValueError(f"{shortened(json.dumps(found))} is not an object of topics")
    offsets = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"{topic!r} must have an object of partitions")
        for partition, offset in partitions.items():
            if not (partition.isascii() and partition.isdigit()):
                raise ValueError(f"{partition!r} is not the number of a partition of {topic}")
            if not isinstance(offset, int) or isinstance(offset, bool) or offset < least:
                raise ValueError(f"{json.dumps(offset)} cannot stand for {topic}-{partition}")
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def json_of(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Topics and partitions in order: equal offsets must give equal text, for Spark compares the text."""
    found: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return found


def shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


# ---- from bounds to offsets -------------------------------------------------------------------------------------


class Span(NamedTuple):
    """What a partition holds now: offsets from `earliest` up to, not including, `latest`."""

    earliest: int
    latest: int


def check_names_all(bound: Bound, partitions: Iterable[TopicPartition]) -> None:
    """A bound with a place for each partition must have one for each that is read, and for no other."""
    match bound:
        case AtOffsets(offsets=given) | AtTimes(timestamps=given):
            named, read = set(given), set(partitions)
        case _:
            return
    if missing := sorted(read - named):
        why = f"says nothing of {listed(missing)}; name every partition that is read"
        hint = ", with -1 for latest or -2 for earliest" if isinstance(bound, AtOffsets) else ""
        raise ConfigError(bound.option, why + hint)
    if unknown := sorted(named - read):
        raise ConfigError(
            bound.option, f"names {listed(unknown)}, which this query does not read; leave it out"
        )


def timestamps_of(bound: Bound, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The moments to look up before `resolve`; none for bounds that are not about time."""
    match bound:
        case AtTime(timestamp=timestamp):
            return dict.fromkeys(partitions, timestamp)
        case AtTimes(timestamps=timestamps):
            return dict(timestamps)
        case _:
            return {}


def resolve(
    bound: Bound,
    spans: Mapping[TopicPartition, Span],
    found: Offsets,
    *,
    no_match_is_error: bool,
) -> dict[TopicPartition, int]:
    """An offset for each partition. `found` has the offsets of `timestamps_of`, -1 where no record is as young."""
    match bound:
        case Everywhere(offset=offset):
            asked: Offsets = dict.fromkeys(spans, offset)
        case AtOffsets(offsets=offsets):
            asked = offsets
        case _:
            asked = found
            if no_match_is_error:
                check_matched(bound, found)
    return {
        partition: span.earliest
        if asked[partition] == EARLIEST
        else span.latest
        if asked[partition] == LATEST
        else asked[partition]
        for partition, span in spans.items()
    }


def check_matched(bound: AtTime | AtTimes, found: Offsets) -> None:
    unmatched = [partition for partition, offset in sorted(found.items()) if offset == LATEST]
    if unmatched:
        asked = timestamps_of(bound, unmatched)
        time = asked[unmatched[0]]
        who = f"{listed(unmatched)} {have(unmatched)}"
        why = f"{who} no record at or after {time} (milliseconds)"
        hint = "ask for an earlier time, or set startingOffsetsByTimestampStrategy to latest"
        raise ConfigError(bound.option, f"{why}; {hint}")


def clamp(
    option: str, offsets: Offsets, spans: Mapping[TopicPartition, Span]
) -> tuple[dict[TopicPartition, int], list[ConfigError]]:
    """The offsets moved into what there is, and a word about each that had to be moved."""
    inside, moved = {}, []
    for partition, offset in offsets.items():
        span = spans[partition]
        inside[partition] = min(max(offset, span.earliest), span.latest)
        if inside[partition] != offset:
            why = (
                f"offset {offset} of {partition} is out of range, it has {span.earliest} to"
                f" {span.latest}"
            )
            moved.append(ConfigError(option, why))
    return inside, moved


def have(names: Sequence[object]) -> str:
    return "has" if len(names) == 1 else "have"


def listed(partitions: Sequence[TopicPartition]) -> str:
    """orders-0, orders-1 and 14 more"""
    shown = ", ".join(map(str, partitions[:3]))
    return shown if len(partitions) <= 3 else f"{shown} and {len(partitions) - 3} more"


# ---- one micro-batch --------------------------------------------------------------------------------------------


def count_new(start: Offsets, latest: Offsets) -> int:
    return sum(max(0, end - start.get(partition, 0)) for partition, end in latest.items())


def limited(start: Offsets, latest: Offsets, rows_max: int) -> dict[TopicPartition, int]:
    """At most about `rows_max` offsets behind `start`, each partition in proportion to what waits in it.

    100 wait in a, 300 in b, and 40 may be read: 10 of a, 30 of b. A partition that would get less than one offset gets
    one, so that none starves; the sum may exceed the limit by that much.
    """
    sizes = {partition: end - start[partition] for partition, end in latest.items()}
    total = sum(size for size in sizes.values() if size > 0)
    if total == 0:
        return dict(latest)
    ends = {}
    for partition, end in latest.items():
        size = sizes[partition]
        if size <= 0:
            ends[partition] = end
            continue
        # Whole numbers: offsets are larger than a float counts exactly.
        share = rows_max * size // total
        ends[partition] = min(end, start[partition] + max(share, 1))
    return ends


def may_start(new: int, rows_min: int, waited_ms: float, wait_ms_max: int) -> bool:
    """minOffsetsPerTrigger and maxTriggerDelay: a batch waits for enough records, but not for ever."""
    return new >= rows_min or waited_ms >= wait_ms_max


def losses(start: Offsets, end: Offsets, earliest: Offsets) -> list[DataLoss]:
    """What a micro-batch from `start` to `end` can no longer deliver.

    Partitions that are not in `start` appeared since, and their first offset is 0 unless records were deleted before
    anyone read them; `earliest` has it.
    """
    found = []
    for partition, begin in sorted(start.items()):
        topic, number = partition
        if partition not in end:
            why = "the partition or its topic was deleted"
            found.append(DataLoss(topic, number, begin, begin, why))
        elif end[partition] < begin:
            why = f"the log ends at {end[partition]} now; the topic was created anew or cut back"
            found.append(DataLoss(topic, number, end[partition], begin, why))
    for partition in sorted(end.keys() - start.keys()):
        first = earliest.get(partition, 0)
        if first > 0:
            why = "they were deleted before this query saw the new partition"
            found.append(DataLoss(partition.topic, partition.partition, 0, first, why))
    return found


# ---- ranges -----------------------------------------------------------------------------------------------------


def ranges(
    start: Offsets, end: Offsets, topic_ids: Callable[[str], UUID | None]
) -> list[OffsetRange]:
    """One range for each partition that has something to read, in order."""
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


def split(
    whole: Sequence[OffsetRange], *, partitions_min: int | None, records_max: int | None
) -> list[OffsetRange]:
    """minPartitions and maxRecordsPerPartition: long ranges become several, which are read by several tasks.

    First no range may be longer than `records_max`. If there are still fewer than `partitions_min`, each is cut in
    proportion to its length; the short ones, that stay whole, do not count in the proportion. The number of ranges is
    about what was asked for: rounding may give a few more or less.
    """
    parts = [found for found in whole if found.end > found.start]
    if records_max is not None:
        parts = [
            part
            for found in parts
            for part in cut(found, math.ceil((found.end - found.start) / records_max))
        ]
    if partitions_min is None or partitions_min <= len(parts):
        return parts
    total = size_of(parts)
    short = [part for part in parts if share_of(part, total, partitions_min) == 1]
    rest = total - size_of(short)
    wanted = max(partitions_min - len(short), 1)
    return [
        piece
        for part in parts
        for piece in cut(part, 1 if part in short else share_of(part, rest, wanted))
    ]


def share_of(part: OffsetRange, total: int, wanted: int) -> int:
    return max(1, math.floor((part.end - part.start) / total * wanted + 0.5))


def size_of(parts: Iterable[OffsetRange]) -> int:
    return sum(part.end - part.start for part in parts)


def cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """`count` ranges of lengths that differ by one at most; fewer where there are not as many offsets."""
    size = whole.end - whole.start
    count = max(1, min(count, size))
    edges = [whole.start + size * index // count for index in range(count + 1)]
    return [replace(whole, start=begin, end=end) for begin, end in pairwise(edges)]
