"""Truncation: a follower removes the end of its log when its leader says that the two logs have diverged.

Order of effects: the segment files, then everything in memory, then the files that describe the log. Only the last step
needs room on the disk. If it fails, memory and segments agree and the caller may go on: the producer state must never
know a batch that was removed, or a retry of that batch would be acknowledged as a duplicate.

A truncation is made durable at once: if a removed file came back after a crash, its old records would stand beside the
new ones. The sync blocks the event loop, which is acceptable because truncations are rare.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from typing import TYPE_CHECKING

from barnabas.storage import snapshots

if TYPE_CHECKING:
    from barnabas.storage.log import Log

logger = logging.getLogger(__name__)


def truncate_to(log: Log, offset: int, now_ms: int) -> bool:
    if offset >= log.log_end_offset:
        # We may have noted an epoch of our own as leader without writing anything in it.
        log.epochs.truncate_from_end(log.log_end_offset)
        log.save_epochs()
        return False
    logger.info("truncating log=%s from=%d to=%d", log.directory, log.log_end_offset, offset)
    log.cuts += 1
    if offset < log.bases[0]:
        truncate_fully_and_start_at(log, offset, offset, now_ms)
        return True
    keep = bisect_right(log.bases, offset)
    for segment in log.segments[keep:]:
        segment.remove_files()
    del log.segments[keep:]
    del log.bases[keep:]
    log.active = log.segments[-1]
    log.active.truncate(offset, now_ms)
    log.active.close_index_files()
    for suffix in (".index", ".timeindex"):
        log.disk.remove(log.active.path + suffix)
    log.closed_bytes = sum(segment.size for segment in log.segments[:-1])
    log.log_end_offset = log.active.next_offset()
    log.log_start_offset = min(log.log_start_offset, log.log_end_offset)
    log.watermark = min(log.watermark, log.log_end_offset)
    snapshots.drop(log.disk, log.directory, lambda snapshot: snapshot > log.log_end_offset)
    if log.producers.by_id:
        log.producers = snapshots.rebuild(
            log.disk,
            log.directory,
            log.segments,
            log_start_offset=log.log_start_offset,
            end=log.log_end_offset,
        )
    finish(log)
    return True


def truncate_fully_and_start_at(log: Log, offset: int, log_start_offset: int, now_ms: int) -> None:
    log.cuts += 1
    log.epochs.clear()
    log.producers.clear()
    for segment in [*log.segments, *(segment for _, segment in log.deleted)]:
        segment.remove_files()
    log.deleted.clear()
    log.active = log.new_segment(offset, now_ms)
    log.segments = [log.active]
    log.bases = [offset]
    log.closed_bytes = 0
    log.log_end_offset = offset
    log.log_start_offset = log_start_offset
    log.watermark = offset
    snapshots.drop(log.disk, log.directory, lambda _: True)
    finish(log)


def finish(log: Log) -> None:
    """Bring the rest of the log's state in line with its new end, first in memory and then in files."""
    end = log.log_end_offset
    log.saved_end = -1
    log.tail.clear()
    log.bound_offset = -1
    log.epochs.truncate_from_end(end)
    log.cleaned_to = min(log.cleaned_to, end)
    lowered = log.recovery_point > end
    log.recovery_point = min(log.recovery_point, end)
    log.disk.sync_now([log.active.log], [log.directory])
    if lowered and log.on_truncated is not None:
        log.on_truncated()
    log.save_epochs()
