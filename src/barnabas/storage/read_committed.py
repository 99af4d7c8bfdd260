"""Lookups of aborted transactions, for consumers that read only committed records.

Such a consumer gets the records up to the last stable offset, and the aborted transactions among them. It skips the
records of each producer from the first offset of an aborted transaction to its marker.
"""

from __future__ import annotations

from bisect import bisect_left

from barnabas.storage import aborted_transactions, transaction_index
from barnabas.storage.index import OFFSET_ENTRY
from barnabas.storage.log import Log
from barnabas.storage.segment import Segment, floor_index
from barnabas.storage.segment_list import LogRead
from barnabas.storage.transaction_index import AbortedEntry


def aborted_in_read(log: Log, offset: int, found: LogRead) -> list[AbortedEntry]:
    """Return the aborted transactions with records in `found`, the result of a read at `offset`.

    As in Kafka, the result may have further ones: the end of the read is rounded up to the next index entry.
    """
    if not found.size:
        return []
    segments = log.segments
    at = floor_index(segments, offset)
    part = found.slices[-1]
    while (
        segments[at].log is not part.file
    ):  # the segment with `offset` may have no records at or after it
        at += 1
    end = offset_after(segments[at], part.position + part.size)
    return find_aborted(
        log, offset, log.next_segment_offset(segments[at].base_offset) if end is None else end
    )


def find_aborted(log: Log, start: int, end: int) -> list[AbortedEntry]:
    """Return the aborted transactions with records at or after offset `start` and before `end`.

    Ordered by their markers, which may be in later segments.
    """
    segments, found = log.segments, []
    for at in range(floor_index(segments, start), len(segments)):
        entries = segments[at].aborted
        if entries is None:
            entries = aborted_transactions.load_aborted(
                log.disk, log.directory, segments, at, end_offset=log.log_end_offset
            )
        if entries:
            more, is_complete = transaction_index.search(entries, start, end)
            found += more
            if is_complete:
                break
    return found


def offset_after(segment: Segment, position: int) -> int | None:
    """Return an offset after all records before `position` of the log file, by the offset index.

    None if the index has no entry at or after `position`: all records of the segment may be before it.
    """
    if segment.offsets is not None:
        offsets, positions = segment.offsets.offsets, segment.offsets.positions
        at = bisect_left(positions, position)
        return segment.base_offset + offsets[at] if at < len(positions) else None
    file = segment.open_indexes()[0]
    low, high = 0, file.size() // OFFSET_ENTRY.size
    count = high
    while low < high:
        middle = (low + high) // 2
        if (
            OFFSET_ENTRY.unpack(file.read(middle * OFFSET_ENTRY.size, OFFSET_ENTRY.size))[1]
            < position
        ):
            low = middle + 1
        else:
            high = middle
    if low == count:
        return None
    relative: int = OFFSET_ENTRY.unpack(file.read(low * OFFSET_ENTRY.size, OFFSET_ENTRY.size))[0]
    return segment.base_offset + relative
