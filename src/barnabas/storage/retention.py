"""Which segments of a log retention deletes: by age, by size, and before the log start offset.

Segments are deleted oldest first, up to the first one that must stay. No segment with a record at or after the high
watermark is deleted. The active segment may be deleted too, unless it is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.config.topic import TopicConfig
from barnabas.storage.segment import Segment
from barnabas.storage.segment_list import SegmentList


class DeletionCandidate(NamedTuple):
    """A segment that may be deleted if its records are replicated and a limit applies."""

    segment: Segment
    end_offset: int
    """The offset after its last record."""
    bytes_after: int
    """Size of the log without this segment and the earlier ones."""


def reasons_to_delete(
    segments: SegmentList,
    config: TopicConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
) -> list[str]:
    """One reason for each of the first segments, in order. The segments after them stay."""
    candidates = find_candidates(segments, high_watermark, log_end_offset)
    reasons: list[str] = []

    def extend(reason: str, applies: Callable[[DeletionCandidate], bool]) -> None:
        for candidate in candidates[len(reasons) :]:
            if not applies(candidate):
                return
            reasons.append(reason)

    extend(
        "log start",
        lambda each: each.end_offset <= log_start_offset and each.segment is not segments.active,
    )
    if "delete" in config.cleanup_policy:
        if config.retention_bytes >= 0:
            extend("retention.bytes", lambda each: each.bytes_after >= config.retention_bytes)
        if config.retention_ms >= 0:
            oldest_ms = now_ms - config.retention_ms
            extend("retention.ms", lambda each: each.segment.retention_timestamp_ms() < oldest_ms)
    return reasons


def find_candidates(
    segments: SegmentList, high_watermark: int, log_end_offset: int
) -> list[DeletionCandidate]:
    candidates: list[DeletionCandidate] = []
    bytes_left = segments.size_bytes
    for segment, end_offset in zip(segments, [*segments.bases[1:], log_end_offset], strict=True):
        is_empty = segment is segments.active and segment.size == 0
        if is_empty or end_offset > high_watermark:
            break
        bytes_left -= segment.size
        candidates.append(DeletionCandidate(segment, end_offset, bytes_left))
    return candidates
