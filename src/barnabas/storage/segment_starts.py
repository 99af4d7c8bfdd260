"""Offsets by segment, for ListOffsets version 0."""

from __future__ import annotations

from barnabas.storage.log import Log
from barnabas.storage.timestamps import EARLIEST, LATEST


def list_segment_starts(log: Log, timestamp: int, now_ms: int) -> list[int]:
    """Return the base offsets of segments last modified at or before `timestamp`, newest first.

    For timestamp -1: all base offsets and the log end offset. For -2: only the log start offset.
    """
    starts = [
        (max(each.base_offset, log.log_start_offset), log.disk.modified_ms(each.log.path))
        for each in log.segments
    ]
    if log.segments.active.size:
        starts.append((log.log_end_offset, now_ms))
    if timestamp == EARLIEST:
        starts = starts[:1]
    elif timestamp != LATEST:
        while starts and starts[-1][1] > timestamp:
            starts.pop()
    return sorted((offset for offset, _ in starts), reverse=True)
