"""How a follower takes over what its leader wrote: whole batches, numbered already, as many as came in one fetch.

Every checksum is verified: what is wrong on the wire or on the leader's disk does not reach this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.storage import snapshots
from barnabas.wire.records import BatchHeader, batch_headers, crc_is_valid

if TYPE_CHECKING:
    from barnabas.storage.log import Log

Placed = list[tuple[int, BatchHeader]]
"""Batches by their position in the bytes they came in."""


class FollowerAppend(NamedTuple):
    """What a follower took over; `size` leaves out a batch that was cut short at the end."""

    first_offset: int
    last_offset: int
    size: int


NOTHING_TAKEN = FollowerAppend(-1, -1, 0)


def append(log: Log, data: memoryview, now_ms: int) -> FollowerAppend:
    batches = checked_batches(data)
    if not batches:
        return NOTHING_TAKEN
    first = batches[0][1]
    if first.base_offset < log.log_end_offset:
        begin_inside_batch(log, first, now_ms)
    run_at = 0
    run: Placed = []
    for position, header in batches:
        if run and position + header.size - run_at > room_left(log):
            append_run(log, data[run_at:position], run, now_ms)
            run_at, run = position, []
        run.append((position - run_at, header))
    end = batches[-1][0] + batches[-1][1].size
    append_run(log, data[run_at:end], run, now_ms)
    return FollowerAppend(first.base_offset, log.log_end_offset - 1, end)


def checked_batches(data: memoryview) -> Placed:
    batches: Placed = []
    previous = -1
    try:
        for position, header in batch_headers(data):
            if not crc_is_valid(data, position, header):
                why = f"checksum of batch {header.base_offset}"
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, why)
            if header.base_offset <= previous or header.last_offset_delta < 0:
                why = f"offset {header.base_offset} behind {previous}"
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, why)
            previous = header.last_offset
            batches.append((position, header))
    except RemoteWireError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    return batches


def begin_inside_batch(log: Log, first: BatchHeader, now_ms: int) -> None:
    """The leader's log may start inside a batch (DeleteRecords), and a follower with nothing yet fetches from that
    offset: it gets the whole batch, so its log begins with that batch and its log start stays inside."""
    end = log.log_end_offset
    if log.size_bytes or first.last_offset < end:
        why = f"the log ends at {end}, the batch begins at {first.base_offset}"
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, why)
    log.truncate_fully_and_start_at(first.base_offset, log_start_offset=end, now_ms=now_ms)


def room_left(log: Log) -> int:
    """Bytes that go into the active segment before it is rolled; a fresh one, if it is full."""
    room = log.segment_bytes - log.active.size
    return room if room > 0 else log.segment_bytes


def append_run(log: Log, data: memoryview, run: Placed, now_ms: int) -> None:
    """One append set: these batches go into the same segment with one write."""
    first, last = run[0][1], run[-1][1]
    largest = max(run, key=lambda entry: entry[1].max_timestamp)[1]
    for _, header in run:
        if header.partition_leader_epoch > log.epochs.latest:
            # A log that starts inside a batch: its first epoch starts with the log (validation.py).
            start = max(header.base_offset, log.log_start_offset)
            log.assign_epoch(header.partition_leader_epoch, start)
    if log.epochs.unsaved:
        log.save_epochs()  # after a truncation that found no room for the file
    segment = log.active
    if log.must_roll(segment, len(data), largest.max_timestamp, last.last_offset, now_ms):
        segment = log.roll(now_ms, base_offset=first.base_offset)
    position = segment.size
    segment.append(data, len(data), last.last_offset, largest.max_timestamp, largest.last_offset)
    expected = log.log_end_offset
    log.log_end_offset = last.next_offset
    if log.unflushed_since_ms < 0:
        log.unflushed_since_ms = now_ms
    for at, header in run:
        if header.base_offset != expected:
            log.tail.clear()
        log.tail.append(header.base_offset, position + at)
        expected = header.next_offset
        if header.producer_id >= 0:
            snapshots.record(log.producers, header, data[at : at + header.size])
