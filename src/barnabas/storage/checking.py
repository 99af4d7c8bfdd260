"""Is what stands in a segment still what was written there?

Everything this broker wrote since its start was verified before it was written, and everything a recovery read was
verified then. What is left is what a clean start believed: `Segment.unchecked_to` says how far that goes. Before such
bytes are sent to anybody they are read through once, a few megabytes ahead of the reader, and what was found is
remembered:

    0            checked_from            checked_to              unchecked_to       size
    │·················│▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓│·························│▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓│
                       known to be right          nobody looked yet    written since the start

`faults` are the positions of batches that are not right; they are never sent. One run of checked bytes is remembered,
since readers go forward; another reader elsewhere costs another look. Checksums do not cover a batch's base offset and
leader epoch: the offset must fit to its neighbours, the epoch is believed.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.errors import CorruptBatch
from barnabas.storage.segment import Segment
from barnabas.world.ports import Disk

AHEAD_BYTES = 1 << 20
NO_FAULT = -1


class Checked(NamedTuple):
    """What one look found: `start` to `end` is right, and at `fault` stands something that is not."""

    start: int
    end: int
    fault: int = NO_FAULT


def check(
    disk: Disk, segment: Segment, start: int, *, end_offset: int, size: int = AHEAD_BYTES
) -> Checked:
    """Read batches from `start` on, where one begins, until so many bytes are known to be right. `end_offset` is where
    the next segment begins. Done in a thread, with a disk of its own."""
    source = Segment(
        disk,
        segment.path,
        disk.open(segment.log.path),
        base_offset=segment.base_offset,
        index_interval=0,
        now_ms=0,
    )
    source.size = limit = min(source.size, segment.unchecked_to)
    last_at, last_floor = start, segment.base_offset
    end, floor = start, segment.base_offset
    try:
        for position, header, _ in source.checked_batches(segment.base_offset, start=start):
            if header.next_offset > end_offset:
                return Checked(start, position, position)
            if position - start >= size:
                return Checked(start, position)  # the one before fits to this one
            last_at, last_floor = position, floor
            end, floor = position + header.size, header.next_offset
        if end == limit:
            return Checked(start, end)
        if next(source.checked_batches(last_floor, start=end), None) is not None:
            end = last_at  # right but for its offset: of the two, the earlier one claims too much
        return Checked(start, end, end)
    finally:
        source.close()


def sendable(segment: Segment, position: int, size: int) -> tuple[int, Segment | None]:
    """How many of these bytes may be sent; the segment if nobody knows yet. CorruptBatch if none ever may."""
    if position in segment.faults:
        raise CorruptBatch(segment.log.path, "the checksum does not match", position)
    if segment.checked_from <= position < segment.checked_to:
        return min(size, segment.checked_to - position), None
    return size, segment


def note(segment: Segment, found: Checked) -> None:
    """Remember it, on the loop."""
    if found.fault != NO_FAULT:
        segment.faults = (*segment.faults, found.fault)
    if segment.checked_from <= found.start <= segment.checked_to:
        segment.checked_to = max(segment.checked_to, found.end)
    elif found.start <= segment.checked_from <= found.end:
        segment.checked_from = found.start
        segment.checked_to = max(segment.checked_to, found.end)
    else:
        segment.checked_from, segment.checked_to = found.start, found.end
    if segment.checked_from == 0 and segment.checked_to >= segment.unchecked_to:
        segment.unchecked_to = 0


def next_to_check(segment: Segment) -> int | None:
    """Where whoever looks through all of it goes on; None when there is nothing left, or no way behind a fault."""
    if segment.unchecked_to == 0 or segment.faults:
        return None
    return segment.checked_to if segment.checked_from == 0 else 0
