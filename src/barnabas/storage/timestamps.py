"""Offsets by timestamp, for ListOffsets.

The time index gives the position from which to scan batch headers; the records of matching batches are then read.
Timestamps need not ascend with offsets: "the first record" means the record with the lowest offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.batch.header import BatchHeader
from barnabas.batch.records import Record, records
from barnabas.storage.segment import Segment

LATEST = -1
EARLIEST = -2


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def find_first_at_or_after(
    segments: Sequence[Segment], timestamp: int, log_start_offset: int
) -> TimestampOffset | None:
    for segment in segments:
        segment.load_timestamps()
        if segment.size == 0 or segment.largest_timestamp < timestamp:
            continue
        for position, header in segment.headers(segment.floor_position_of_time(timestamp)):
            if header.max_timestamp < timestamp or header.last_offset < log_start_offset:
                continue
            for record in load_records(segment, position, header):
                if record.timestamp >= timestamp and record.offset >= log_start_offset:
                    return TimestampOffset(
                        record.timestamp, record.offset, header.partition_leader_epoch
                    )
    return None


def find_largest(segments: Sequence[Segment]) -> TimestampOffset | None:
    """Return the record with the largest timestamp, the first of several equal ones, or None for an empty log."""
    best: Segment | None = None
    for segment in segments:
        segment.load_timestamps()
        if segment.size and (best is None or segment.largest_timestamp > best.largest_timestamp):
            best = segment
    if best is None:
        return None
    # If no record has a timestamp, the first record is returned.
    is_untimed = best.largest_timestamp < 0
    found = best.find(best.base_offset if is_untimed else best.largest_timestamp_offset)
    if found is None:
        return None
    record = max(load_records(best, *found), key=lambda record: record.timestamp)
    return TimestampOffset(record.timestamp, record.offset, found.header.partition_leader_epoch)


def load_records(segment: Segment, position: int, header: BatchHeader) -> list[Record]:
    return list(records(memoryview(segment.log.read(position, header.size))))
