"""What a log may forget: segments by age, by size and below the log start.

Oldest first, and the first segment that must stay ends the walk. Never one that reaches beyond the high watermark. The
active segment may go as well if it holds records: an empty one takes its place first.

A deleted segment is out of the log at once and on the disk a while longer (file.delete.delay.ms), for readers that are
still sending from it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.errors import OutOfSpace

if TYPE_CHECKING:
    from barnabas.storage.log import Log
    from barnabas.storage.segment import Segment

logger = logging.getLogger(__name__)

Breach = Callable[["Segment", int], bool]
"""Whether a segment may go, given the offset at which the next one begins."""


def delete_old_segments(log: Log, now_ms: int) -> int:
    removed = delete_while(log, below_log_start(log), "log start", now_ms)
    if "delete" in log.config.cleanup_policy:
        removed += delete_while(log, beyond_size(log), "retention.bytes", now_ms)
        removed += delete_while(log, beyond_age(log, now_ms), "retention.ms", now_ms)
    return removed


def below_log_start(log: Log) -> Breach:
    return lambda segment, next_base: (
        segment is not log.active and next_base <= log.log_start_offset
    )


def beyond_size(log: Log) -> Breach:
    limit = log.config.retention_bytes
    excess = log.size_bytes - limit

    def breach(segment: Segment, next_base: int) -> bool:
        nonlocal excess
        if limit < 0 or excess < segment.size:
            return False
        excess -= segment.size
        return True

    return breach


def beyond_age(log: Log, now_ms: int) -> Breach:
    limit = log.config.retention_ms
    return lambda segment, next_base: limit >= 0 and now_ms - segment.age_stamp_ms() > limit


def delete_while(log: Log, breach: Breach, reason: str, now_ms: int) -> int:
    count = 0
    for segment, next_base in zip(log.segments, [*log.bases[1:], log.log_end_offset], strict=True):
        if segment is log.active and segment.size == 0:
            break
        if next_base > log.high_watermark or not breach(segment, next_base):
            break
        count += 1
    if count == 0:
        return 0
    if count == len(log.segments):
        try:
            log.roll(now_ms)
        except OutOfSpace:
            count -= 1  # The others make room.
    gone = log.segments[:count]
    if not gone:
        return 0
    log.advance_log_start(log.segments[count].base_offset)
    del log.segments[:count]
    del log.bases[:count]
    due = now_ms + log.config.file_delete_delay_ms
    for segment in gone:
        logger.info(
            "deleting segment log=%s base_offset=%d bytes=%d reason=%s",
            log.directory,
            segment.base_offset,
            segment.size,
            reason,
        )
        log.closed_bytes -= segment.size
        log.deleted.append((due, segment))
    log.bound_offset = -1
    return count


def purge(log: Log, now_ms: int) -> None:
    """Remove the files of deleted segments whose delay is over, oldest first, each when the one before is gone for
    good: a crash that brought back the first and not the second would leave a hole, and recovery cuts at holes."""
    while log.deleted and log.deleted[0][0] <= now_ms:
        if log.directory_changes > log.directory_synced:
            log.disk.sync_now([], [log.directory])
            log.directory_synced = log.directory_changes
        segment = log.deleted.pop(0)[1]
        segment.remove_files()
        if not segment.suffix:  # for the next start, a `.deleted` file that came back is none
            log.directory_changes += 1
