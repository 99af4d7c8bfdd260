"""Checksum verification of a segment before its bytes are sent.

Batches that this broker appended or recovered since its start are already verified. Older bytes of a segment, up to
`Segment.unchecked_to`, are verified before they are sent, in steps of 1 MiB. The result is stored in the segment:

    0            checked_from            checked_to              unchecked_to       size
    │·················│▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓│·························│▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓│
                       verified                   not verified yet     written since the start

`faults` are the positions of corrupt batches, which are never sent. Only one verified range is stored, because readers
move forward; a reader at another position causes another check. A checksum does not cover the base offset and the
leader epoch of a batch. Offsets must ascend from batch to batch; the epoch is trusted. Positions are bytes in the
`.log` file.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.errors import CorruptBatch
from barnabas.storage.segment import Segment
from barnabas.world.ports import Disk

AHEAD_BYTES = 1 << 20
NO_FAULT = -1


class CheckResult(NamedTuple):
    """The result of one check: the bytes from `start` to `end` are valid, and the batch at `fault` is corrupt."""

    start: int
    end: int
    fault: int = NO_FAULT


def verify_batches(
    disk: Disk, segment: Segment, start: int, *, end_offset: int, size: int = AHEAD_BYTES
) -> CheckResult:
    """Verify batches from `start` on, until `size` bytes are valid. Runs in a thread, with its own disk.

    A batch begins at `start`. `end_offset` is the offset after the last record of the segment.
    """
    source = Segment(disk, segment.path, segment.base_offset, log=disk.open(segment.log.path))
    source.size = limit = min(source.size, segment.unchecked_to)
    last_at, last_floor = start, segment.base_offset
    end, floor = start, segment.base_offset
    try:
        for position, header, _ in source.checked_batches(segment.base_offset, start=start):
            if header.next_offset > end_offset:
                return CheckResult(start, position, position)
            if position - start >= size:
                return CheckResult(start, position)  # the previous batch has no offsets of this one
            last_at, last_floor = position, floor
            end, floor = position + header.size, header.next_offset
        if end == limit:
            return CheckResult(start, end)
        if next(source.checked_batches(last_floor, start=end), None) is not None:
            # This batch is valid except for its offset: the previous batch covers too many offsets.
            end = last_at
        return CheckResult(start, end, end)
    finally:
        source.close()


def sendable(segment: Segment, position: int, size: int) -> tuple[int, Segment | None]:
    """Return how many of `size` bytes to send, and the segment if they must be checked first. Raises CorruptBatch."""
    if position in segment.faults:
        raise CorruptBatch(segment.log.path, "the checksum does not match", position)
    if segment.checked_from <= position < segment.checked_to:
        return min(size, segment.checked_to - position), None
    return size, segment


def record_check(segment: Segment, result: CheckResult) -> None:
    """Store the result of a check. Called on the event loop."""
    if result.fault != NO_FAULT:
        segment.faults = (*segment.faults, result.fault)
    if segment.checked_from <= result.start <= segment.checked_to:
        segment.checked_to = max(segment.checked_to, result.end)
    elif result.start <= segment.checked_from <= result.end:
        segment.checked_from = result.start
        segment.checked_to = max(segment.checked_to, result.end)
    else:
        segment.checked_from, segment.checked_to = result.start, result.end
    if segment.checked_from == 0 and segment.checked_to >= segment.unchecked_to:
        segment.unchecked_to = 0


def next_to_check(segment: Segment) -> int | None:
    """Return the position at which a check of the whole segment continues. None if it is complete or found a fault."""
    if segment.unchecked_to == 0 or segment.faults:
        return None
    return segment.checked_to if segment.checked_from == 0 else 0
