"""Retention: selects the segments of a log to delete, by age, by size, or before the log start offset.

Segments are deleted oldest first, up to the first one that must stay. No segment with a record at or after the high
watermark is deleted. The active segment may be deleted too, unless it is empty.
"""

from __future__ import annotations

from barnabas.config.topic import TopicConfig
from barnabas.storage.segment_list import SegmentList


def reasons_to_delete(
    segments: SegmentList,
    config: TopicConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
) -> list[str]:
    """Return one reason for each segment to delete, oldest first. The segments after them stay."""
    has_retention = "delete" in config.cleanup_policy
    by_size = has_retention and config.retention_bytes >= 0
    by_age = has_retention and config.retention_ms >= 0
    reasons: list[str] = []
    bytes_after = segments.size_bytes
    for segment, end_offset in zip(segments, [*segments.bases[1:], log_end_offset], strict=True):
        is_active = segment is segments.active
        if end_offset > high_watermark or (is_active and segment.size == 0):
            break
        bytes_after -= segment.size
        if end_offset <= log_start_offset and not is_active:
            reasons.append("log start")
        elif by_size and bytes_after >= config.retention_bytes:
            reasons.append("retention.bytes")
        elif by_age and segment.retention_timestamp_ms() < now_ms - config.retention_ms:
            reasons.append("retention.ms")
        else:
            break
    return reasons
