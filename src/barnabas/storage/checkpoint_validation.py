"""Validation of checkpointed values against the log on disk.

A checkpoint has no checksum, so a flipped bit can turn one number into another. Each value is compared with the
segments and, where there is one, with a second file that holds the same fact. If they disagree, the value that keeps
more records is used. Kafka deletes a log whose checkpointed start is beyond its end; here the records stay.
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
"""`cleaned_to` of a log whose line in a damaged checkpoint may be lost: holes in it are normal."""


def warn_checkpoint(directory: str, name: str, value: int, problem: str, using: int) -> None:
    logger.warning(
        "checkpoint does not fit the log file=%s log=%s value=%d problem=%s using=%d",
        name,
        directory,
        value,
        problem,
        using,
    )


def usable_log_start(
    directory: str,
    segments: Sequence[Segment],
    value: int,
    *,
    epochs: LeaderEpochs | None,
    high_watermark: int,
    clean: bool,
) -> int:
    """The log start offset to use before anything is deleted. `epochs` is None if its file is not readable."""
    if value == 0:
        return 0
    first_base = segments[0].base_offset if segments else 0
    using, problem = first_base, None
    if not any(segment.size for segment in segments):
        # There is no record to compare with. The high watermark is never below the log start offset.
        if value > max(high_watermark, segments[-1].base_offset if segments else 0):
            problem = f"beyond the high watermark {high_watermark} of an empty log"
    elif value > segments[-1].base_offset and value > (end := end_of_headers(segments[-1])):
        # If the epochs agree, the end of the log was lost, and all that is left of it had been deleted.
        if epochs is None or epochs.starts[0] != value:
            problem = f"beyond the log end {end}"
    elif epochs is not None and epochs.starts[0] < value and first_base < value:
        # When a log start moves, the first epoch moves along with it, in its own file.
        problem = f"the first leader epoch starts at {epochs.starts[0]}"
        using = max(first_base, epochs.starts[0])
    if problem is None:
        if clean and value < first_base:  # After a crash an old checkpoint is normal.
            warn_checkpoint(
                directory, checkpoints.LOG_START, value, "before the first segment", first_base
            )
        return value
    warn_checkpoint(directory, checkpoints.LOG_START, value, problem, using)
    return using


def end_of_headers(segment: Segment) -> int:
    """The end offset of a segment by its batch headers. With checksums it may turn out to be lower."""
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
    directory: str, value: int, log_start: int, log_end: int, *, clean: bool
) -> int:
    """As in Kafka, between log start and log end."""
    using = max(log_start, min(value, log_end))
    if value > log_end:
        warn_checkpoint(directory, checkpoints.HIGH_WATERMARK, value, "beyond the log end", using)
    elif clean and 0 < value < log_start:
        warn_checkpoint(directory, checkpoints.HIGH_WATERMARK, value, "before the log start", using)
    return using


def usable_cleaned_to(directory: str, value: int, log_end: int) -> int:
    """If the value is after the log end offset, the next cleaning starts at the beginning of the log, as in Kafka."""
    if value <= log_end:
        return value
    if value != PERHAPS_CLEANED:
        warn_checkpoint(
            directory, checkpoints.CLEANED_TO, value, "beyond the log end", NEVER_CLEANED
        )
    return NEVER_CLEANED


def epochs_agree(epochs: LeaderEpochs, active: Segment, *, last_epoch: int, log_start: int) -> bool:
    """Whether the epochs that begin in the active segment, and the last one, are those of its batches.

    Only the active segment is read: its index is in memory. `last_epoch` is that of the last batch, -1 if unknown.
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
                and before.header.base_offset < start  # otherwise there is a hole before `start`
                and before.header.partition_leader_epoch >= epoch
            ):
                return False
    except CorruptBatch:
        return True  # Not a fault of the epochs; recovery or a read reports it.
    return True
