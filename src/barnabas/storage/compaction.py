"""Decisions of compaction: which log to clean, up to which offset, and which segments to merge.

    log start        first dirty              first uncleanable     high watermark   log end
       ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓│░░░░░░░░░░░░░░░░░░░░░░░░░░░░│··························│
       cleaned before      cleaned now                  not yet: too young, not committed, or active

A cleaning reads the keys of the dirty part. It then copies the log up to the end of that part, without records whose
key has a later record in the dirty part. The log with the largest share of dirty bytes is cleaned first. Offsets never
change: the offsets of removed records are missing. compaction_batches.py selects records, cleaner.py does the work.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from barnabas.config.topic import TopicConfig
from barnabas.storage.index import MAX_RELATIVE_OFFSET

NEVER_CLEANED = -1
LONG_MAX = 2**63 - 1


class SegmentFacts(NamedTuple):
    """One closed segment. The timestamps are set only if the topic sets a compaction lag."""

    base_offset: int
    size: int
    index_bytes: int = 0
    first_timestamp: int = -1
    largest_timestamp: int = -1


class LogFacts(Struct, frozen=True, kw_only=True):
    closed: Sequence[SegmentFacts]
    active_base: int
    log_start_offset: int
    log_end_offset: int
    stable_offset: int
    """Offset below which no transaction is open and every record is committed."""
    cleaned_to: int = NEVER_CLEANED


class CleanableRange(Struct, frozen=True, kw_only=True):
    """The part of a log that can be cleaned now."""

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """Whether it has a record older than max.compaction.lag.ms."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_worth_it(self, config: TopicConfig) -> bool:
        if self.is_overdue and self.dirty_bytes:
            return True
        return self.dirty_ratio > config.min_cleanable_dirty_ratio


def find_cleanable(log: LogFacts, config: TopicConfig, now_ms: int) -> CleanableRange:
    first_dirty = log.cleaned_to
    if not log.log_start_offset <= first_dirty <= log.log_end_offset:
        # Records were deleted at the beginning, or the log was truncated: treat all of it as dirty.
        first_dirty = log.log_start_offset
    dirty = segments_from(log, first_dirty)
    limit = min(log.stable_offset, log.active_base)
    lag = config.min_compaction_lag_ms
    if lag > 0:
        young = (each.base_offset for each in dirty if each.largest_timestamp > now_ms - lag)
        limit = min(limit, next(young, limit))
    limit = max(limit, first_dirty)
    # A segment is cleaned completely or not at all.
    inside = segments_from(log, limit)
    first_uncleanable = inside[0].base_offset if inside else log.active_base
    return CleanableRange(
        first_dirty=first_dirty,
        first_uncleanable=first_uncleanable,
        clean_bytes=sum(each.size for each in log.closed if each.base_offset < first_dirty),
        dirty_bytes=sum(each.size for each in dirty if each.base_offset < first_uncleanable),
        is_overdue=is_overdue(dirty, config, now_ms),
    )


def segments_from(log: LogFacts, offset: int) -> list[SegmentFacts]:
    """Return the closed segment with `offset`, and the closed segments after it."""
    if offset >= log.active_base:
        return []
    at = bisect_right(log.closed, offset, key=lambda each: each.base_offset) - 1
    return list(log.closed[max(at, 0) :])


def is_overdue(dirty: Iterable[SegmentFacts], config: TopicConfig, now_ms: int) -> bool:
    oldest = min((each.first_timestamp for each in dirty if each.first_timestamp > 0), default=None)
    return oldest is not None and oldest < now_ms - config.max_compaction_lag_ms


def needs_timestamps(config: TopicConfig) -> bool:
    return config.min_compaction_lag_ms > 0 or config.max_compaction_lag_ms < LONG_MAX


# ---- merging segments -----------------------------------------------------------------------------------------


def group_segments(
    segments: Sequence[SegmentFacts], config: TopicConfig, first_uncleanable: int
) -> list[list[SegmentFacts]]:
    """Return runs of segments that fit into one segment, by their sizes before the cleaning."""
    groups: list[list[SegmentFacts]] = []
    for at, segment in enumerate(segments):
        end = segments[at + 1].base_offset if at + 1 < len(segments) else first_uncleanable
        if groups and fits_group(groups[-1], segment, end - 1, config):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def fits_group(
    group: list[SegmentFacts], segment: SegmentFacts, last_offset: int, config: TopicConfig
) -> bool:
    return (
        sum(each.size for each in group) + segment.size <= config.segment_bytes
        and sum(each.index_bytes for each in group) + segment.index_bytes
        <= config.segment_index_bytes
        and (segment.size == 0 or last_offset - group[0].base_offset <= MAX_RELATIVE_OFFSET)
    )
