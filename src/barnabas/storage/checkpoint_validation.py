"""Validation of checkpointed values against the log on disk.

A checkpoint has no checksum, so a flipped bit can turn one number into another. Each value is compared with the
segments and, if possible, with a second file, such as the leader epochs. If they disagree, the value that keeps more
records is used. Kafka deletes the records of a log whose checkpointed start is beyond its end. Barnabas does so only if
the leader epochs confirm that start.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from barnabas.errors import CorruptBatch
from barnabas.storage import checkpoints
from barnabas.storage.compaction import LONG_MAX, NEVER_CLEANED
from barnabas.storage.epochs import LeaderEpochs
from barnabas.storage.segment import Segment

logger = logging.getLogger(__name__)

PERHAPS_CLEANED = LONG_MAX
"""`cleaned_to` of a log without a line in a damaged checkpoint. It may be compacted, so missing offsets are normal."""


def warn_checkpoint(directory: str, name: str, value: int, problem: str, used: int) -> None:
    logger.warning(
        "implausible checkpoint value log=%s file=%s value=%d used=%d problem=%s",
        *(directory, name, value, used, problem),
    )


def usable_log_start(
    directory: str,
    segments: Sequence[Segment],
    value: int,
    *,
    epochs: LeaderEpochs | None,
    high_watermark: int,
    was_clean_shutdown: bool,
) -> int:
    """Return `value`, or an earlier log start offset if it is implausible. `epochs` is None if they are unknown."""
    if value == 0:
        return 0
    first_base = segments[0].base_offset if segments else 0
    used, problem = first_base, None
    if not any(segment.size for segment in segments):
        # There is no record to compare with. The high watermark is never below the log start offset.
        limit = max(high_watermark, segments[-1].base_offset if segments else 0)
        if value > limit:
            problem = f"beyond {limit}, the high watermark or last base offset of an empty log"
    elif value > segments[-1].base_offset and value > (end := end_offset_by_headers(segments[-1])):
        # If the leader epochs also start at `value`, it is right: the log lost its end, and the remaining records are
        # below the log start offset.
        if epochs is None or epochs.starts[0] != value:
            problem = f"beyond the log end {end}"
    elif epochs is not None and epochs.starts[0] < value and first_base < value:
        # Advancing the log start offset also advances the start of the first leader epoch, in the epoch file.
        problem = f"the first leader epoch starts at {epochs.starts[0]}"
        used = max(first_base, epochs.starts[0])
    if problem is None:
        # After a crash an old checkpoint is normal. The caller raises a value that is too low.
        if was_clean_shutdown and value < first_base:
            warn_checkpoint(
                directory, checkpoints.LOG_START, value, "before the first segment", first_base
            )
        return value
    warn_checkpoint(directory, checkpoints.LOG_START, value, problem, used)
    return used


def end_offset_by_headers(segment: Segment) -> int:
    """Return the end offset by the batch headers. Checksums are not verified, so the valid end may be lower."""
    segment.load_entries()
    assert segment.offsets is not None
    end = segment.base_offset
    try:
        start = segment.offsets.positions[-1] if segment.offsets else 0
        for _, header in segment.headers(start):
            end = header.next_offset
    except CorruptBatch:
        return end
    return end


def usable_high_watermark(
    directory: str, value: int, log_start: int, log_end: int, *, was_clean_shutdown: bool
) -> int:
    """Return the high watermark to use: as in Kafka, `value` clamped to the range from log start to log end."""
    used = max(log_start, min(value, log_end))
    if value > log_end:
        warn_checkpoint(directory, checkpoints.HIGH_WATERMARK, value, "beyond the log end", used)
    elif was_clean_shutdown and 0 < value < log_start:
        warn_checkpoint(directory, checkpoints.HIGH_WATERMARK, value, "before the log start", used)
    return used


def usable_cleaned_to(directory: str, value: int, log_end: int) -> int:
    """Return `value`, or NEVER_CLEANED if it is beyond the log end: the next cleaning then reads the whole log."""
    if value <= log_end:
        return value
    if value != PERHAPS_CLEANED:
        warn_checkpoint(
            directory, checkpoints.CLEANED_TO, value, "beyond the log end", NEVER_CLEANED
        )
    return NEVER_CLEANED


def epochs_agree(epochs: LeaderEpochs, active: Segment, *, last_epoch: int, log_start: int) -> bool:
    """Return whether the epochs that begin in the active segment, and the last epoch, match its batches.

    Only the active segment is read: its index is in memory. `last_epoch` is the epoch of the last batch, -1 if unknown.
    """
    if last_epoch >= 0 and epochs.latest != last_epoch:
        return False
    try:
        for epoch, start in reversed(epochs.entries):
            if start < active.base_offset or start <= log_start:
                break
            found = active.find(start)
            if found is None or found.header.base_offset != start:
                return False
            if found.header.partition_leader_epoch != epoch:
                return False
            before = active.find(start - 1) if start > active.base_offset else None
            if (
                before is not None
                and before.header.base_offset < start  # false if offsets are missing before `start`
                and before.header.partition_leader_epoch >= epoch
            ):
                return False
    except CorruptBatch:
        return True  # the epochs may be right; recovery or a read reports the corrupt batch
    return True
