"""Validation of the records in a batch against its header.

    length │ attributes │ timestamp delta │ offset delta │ key │ value │ headers

Each record carries its length, timestamp delta and offset delta, and each of its fields carries its size. The broker
reads the records, as Kafka does, so that no consumer receives a record that it cannot read. Only very large batches are
trusted (validation.py). `skim` is fast for the records that clients usually send. `walk_records` continues where `skim`
stops, and accepts exactly the records that Kafka accepts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.batch.compression import LimitExceeded
from barnabas.batch.header import Bytes
from barnabas.batch.skim import SkimResult
from barnabas.errors import RemoteWireError

RECORD_BYTES_MIN, HEADER_BYTES_MIN = 7, 2
SKIMMED_MAX = 200_000
WALKED_MAX = 20_000
"""Maximum number of records that `skim` reads, and of records plus headers that `walk_records` reads."""
INT_BYTES_MAX, LONG_BYTES_MAX = 5, 10
NOTHING_SKIMMED = SkimResult(0, 0)


class Outline(NamedTuple):
    """The parts of a record that a leader validates. Positions are relative to the records of the batch."""

    offset_delta: int
    timestamp_delta: int
    has_key: bool
    fields_at: int
    """Start of key, value and headers, which extend to `end`."""
    end: int


def require_possible(count: int, size: int) -> None:
    """Raise LimitExceeded for more than SKIMMED_MAX records, or RemoteWireError if they cannot fit into `size`."""
    if count > SKIMMED_MAX:
        raise record_limit_error(count, size, "records")


def walk_records(
    body: Bytes,
    count: int,
    *,
    ignore_lengths: bool = False,
    limit: int = WALKED_MAX,
    start: SkimResult = NOTHING_SKIMMED,
) -> Iterator[Outline]:
    """Yield the outline of each record after those in `start`, which `skim` has validated.

    `ignore_lengths` skips the check of a record's length against its fields, as Kafka does in compressed batches.
    Raises RemoteWireError if `body` is not exactly `count` records, and LimitExceeded after `limit` records and record
    headers.
    """
    skimmed, at = start
    begin, end, length = at, len(body), 0
    left = limit
    try:
        for number in range(skimmed, count):
            begin = at
            length, at = read_int(body, at)
            stop = at + length
            if stop > end and not ignore_lengths:
                raise RemoteWireError(f"record has {length} bytes, but {end - at} are left")
            timestamp_delta, at = read_long(body, at + 1)
            offset_delta, fields_at = read_int(body, at)
            key_size, at = read_int(body, fields_at)
            at += max(key_size, 0)
            value_size, at = read_int(body, at)
            header_count, at = read_int(body, at + max(value_size, 0))
            left -= 1
            if header_count:
                at = skip_record_headers(body, at, header_count, left)
                left -= header_count
            if left < 0:
                raise record_limit_error(count - number - 1, end - at, "records")
            if at != stop and not ignore_lengths:
                raise RemoteWireError(
                    f"record ends at {stop} by its length, but its fields end at {at}"
                )
            yield Outline(offset_delta, timestamp_delta, key_size >= 0, fields_at, at)
    except IndexError:
        if at > begin and not ignore_lengths:  # the record is complete, but its fields exceed it
            raise RemoteWireError(
                f"fields of a record exceed its length of {length} bytes"
            ) from None
        raise RemoteWireError(f"batch ends before the last of {count} records") from None
    if at != end:
        raise RemoteWireError(f"{end - at} trailing bytes after the last of {count} records")


def record_limit_error(count: int, bytes_left: int, what: str) -> RemoteWireError:
    """Return LimitExceeded, or RemoteWireError if `count` more records or headers do not fit into `bytes_left`."""
    size = RECORD_BYTES_MIN if what == "records" else HEADER_BYTES_MIN
    if count * size > bytes_left:
        return RemoteWireError(f"{count} more {what}, but {bytes_left} bytes are left")
    return LimitExceeded(f"limit of {what} exceeded: {count} not read")


def skip_record_headers(body: Bytes, at: int, count: int, limit: int) -> int:
    """Return the position after `count` headers. Raises LimitExceeded after `limit` headers."""
    if count < 0:
        raise RemoteWireError(f"record has {count} headers")
    for number in range(count):
        if number > limit:
            raise record_limit_error(count - number, len(body) - at, "headers")
        name_size, at = read_int(body, at)
        if name_size < 0:
            raise RemoteWireError("record header has a null key")
        value_size, at = read_int(body, at + name_size)
        at += max(value_size, 0)
    if at > len(body):
        raise IndexError
    return at


def read_int(body: Bytes, at: int) -> tuple[int, int]:
    """Read a varint of up to 32 bits as Kafka does: excess bits of the last byte are dropped."""
    zigzag, end = read_zigzag(body, at)
    if end - at > INT_BYTES_MAX:
        raise RemoteWireError(f"varint at {at} is longer than 32 bits")
    zigzag &= 0xFFFF_FFFF
    return (zigzag >> 1) ^ -(zigzag & 1), end


def read_long(body: Bytes, at: int) -> tuple[int, int]:
    """Read a varint of up to 64 bits as Kafka does: excess bits of the last byte are dropped."""
    zigzag, end = read_zigzag(body, at)
    zigzag &= 0xFFFF_FFFF_FFFF_FFFF
    return (zigzag >> 1) ^ -(zigzag & 1), end


def read_zigzag(body: Bytes, at: int) -> tuple[int, int]:
    """Return the zigzag value of a varint and the position after it. The value may have more than 64 bits."""
    value = 0
    for shift in range(0, 7 * LONG_BYTES_MAX, 7):
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise RemoteWireError("varint is longer than 64 bits")
