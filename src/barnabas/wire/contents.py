"""Does a batch hold the records its header promises?

Every record says how long it is, how late and the how-manieth:

    length │ attributes 0 │ timestamp delta │ offset delta │ key │ value │ headers
    ───────┘              └──── the last one's is usually the batch's max - base timestamp
    └─ up to the end of the batch, for the last

A broker would have to go from record to record to know that they are all there, and in Python that takes longer than
all else it does for a batch. So it looks for the last record only: if one ends where the batch ends and has the last
number, whoever built the batch counted as its header does. `walk` is for those few that do not look so at a glance, and
for small ones. What it takes and what it refuses is what Kafka does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.errors import RemoteWireError
from barnabas.wire.compression import Oversized
from barnabas.wire.records import BatchHeader, Bytes, read_varint, varint

RECORD_BYTES_MIN, HEADER_BYTES_MIN = 7, 2
FEW = 4
"""So many records are gone through in no time."""
WALKED_MAX = 20_000
"""To go through more records and headers than that takes long enough to hold up others."""
GUESSES = 24
ZERO = b"\0"
INT_BYTES_MAX = 5
LONG_BYTES_MAX = 10


class Endless(RemoteWireError):
    """A record whose length does not end."""


class Outline(NamedTuple):
    """What a leader wants to know of a record."""

    offset_delta: int
    timestamp_delta: int
    has_key: bool
    fields_at: int
    """Key, value and headers stand from here to `end`."""
    end: int


def must_be_walked(body: Bytes, header: BatchHeader) -> bool:
    """Whether it takes a walk to know that the records are there. RemoteWireError if they cannot be."""
    if header.count <= WALKED_MAX:
        return not ends_as_announced(body, 0, header)
    if header.count * RECORD_BYTES_MIN > len(body):
        raise RemoteWireError(f"{header.count} records in {len(body)} bytes")
    return False


def ends_as_announced(data: Bytes, start: int, header: BatchHeader) -> bool:
    """Whether the last of the records that begin at `start` is the one its header promises. False: nobody knows."""
    count = header[12]
    if count <= FEW:
        return False
    number = varint(count - 1)
    expected = ZERO + varint(header[8] - header[7]) + number
    size = len(data) - start
    reach = size // count * 2 + 64
    while True:
        tail = bytes(data[max(start, start + size - reach) :])
        at = tail.rfind(expected)
        if at > 0:
            length = varint(len(tail) - at)
            if tail.startswith(length, at - len(length)):
                return True
        if ends_with(tail, number):
            return True
        if reach >= size:
            return False
        reach *= 16  # it may be larger than most


def ends_with(tail: bytes, number: bytes) -> bool:
    """The same where records do not come in the order of their times. In text, zeros are rarer than any one byte a
    number has; two bytes of a number are rare anywhere."""
    sought = number if len(number) > 1 else ZERO
    at = len(tail)
    for _ in range(GUESSES):
        at = tail.rfind(sought, 0, at)
        if at < 1:
            break
        first = at if sought is ZERO else zero_before(tail, at)
        length = varint(len(tail) - first)
        begin = first - len(length)
        is_last = tail[first] == 0 and begin >= 0 and tail.startswith(length, begin)
        if is_last and tail.startswith(number, behind_varint(tail, first + 1)):
            return True
        at += len(sought) - 1
    return False


def zero_before(tail: bytes, at: int) -> int:
    """Where the attributes are, if the offset delta stands at `at`: in front of one varint."""
    begin = at - 1
    while begin > 0 and tail[begin - 1] >= 0x80 and at - begin < LONG_BYTES_MAX:
        begin -= 1
    return max(0, begin - 1)


def behind_varint(tail: bytes, at: int) -> int:
    for end in range(at, min(at + LONG_BYTES_MAX, len(tail))):
        if tail[end] < 0x80:
            return end + 1
    return len(tail)


def walk(
    body: Bytes, count: int, *, by_fields: bool = False, at_most: int = WALKED_MAX
) -> Iterator[Outline]:
    """One after the other; RemoteWireError for what is not `count` records and nothing else, Oversized if with their
    headers they are too many. Who goes by the fields alone does not hold the length of a record against them."""
    at, end = 0, len(body)
    left = at_most - count
    if left < 0:
        raise too_many(count, RECORD_BYTES_MIN, end)
    try:
        for _ in range(count):
            begin = at
            length, at = read_varint(body, at)
            if at - begin > INT_BYTES_MAX:
                raise Endless(f"the record at {begin} has a length that does not end")
            stop = at + length
            if stop > end and not by_fields:
                raise RemoteWireError(f"a record of {length} bytes in {end - at}")
            timestamp_delta, at = read_varint(body, at + 1)
            offset_delta, fields_at = read_int(body, at)
            key_size, at = read_int(body, fields_at)
            at += max(key_size, 0)
            value_size, at = read_int(body, at)
            header_count, at = read_int(body, at + max(value_size, 0))
            if header_count:
                left -= header_count
                if left < 0:
                    raise too_many(header_count, HEADER_BYTES_MIN, end - at)
                at = skip_record_headers(body, at, header_count)
            if at != stop and not by_fields:
                raise RemoteWireError(f"a record says it ends at {stop}, its fields end at {at}")
            yield Outline(offset_delta, timestamp_delta, key_size >= 0, fields_at, at)
    except IndexError:
        raise RemoteWireError(f"the batch ends before the last of {count} records") from None
    if at != end:
        raise RemoteWireError(f"{end - at} bytes behind the last of {count} records")


def too_many(count: int, size: int, room: int) -> RemoteWireError:
    """More than can be looked at; or more than there can be, which is seen at once."""
    if count * size > room:
        return RemoteWireError(f"{count} elements in {room} bytes")
    return Oversized(f"with {count} more there are too many records and headers to look at")


def skip_record_headers(body: Bytes, at: int, count: int) -> int:
    if count < 0:
        raise RemoteWireError(f"{count} record headers")
    for _ in range(count):
        name_size, at = read_int(body, at)
        if name_size < 0:
            raise RemoteWireError("a record header without a name")
        value_size, at = read_int(body, at + name_size)
        at += max(value_size, 0)
    return at


def read_int(body: Bytes, at: int) -> tuple[int, int]:
    value, end = read_varint(body, at)
    if end - at > INT_BYTES_MAX:
        raise RemoteWireError("a varint longer than 32 bits")
    return value, end
