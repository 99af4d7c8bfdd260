"""Does a batch hold the records its header promises?

    length │ attributes │ timestamp delta │ offset delta │ key │ value │ headers

Every record says how long it is, when and the how-manieth, and each of its parts how long that is. A broker goes from
record to record, as Kafka does, so that no consumer meets one that it cannot read. `skim` does that for what clients
send; `walk` goes on where that has stopped, and what it takes and refuses is what Kafka does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.errors import RemoteWireError
from barnabas.wire.compression import Oversized
from barnabas.wire.records import Bytes
from barnabas.wire.skim import Skimmed

RECORD_BYTES_MIN, HEADER_BYTES_MIN = 7, 2
SKIMMED_MAX = 200_000
WALKED_MAX = 20_000
"""To go through more records and headers than that takes long enough to hold up others."""
INT_BYTES_MAX, LONG_BYTES_MAX = 5, 10
NONE = Skimmed(0, 0)


class Endless(RemoteWireError):
    """A record whose length does not end."""


class Short(RemoteWireError):
    """It ends before the last record does."""

    def __init__(self, why: str, *, in_record: bool) -> None:
        super().__init__(why)
        self.in_record = in_record
        """Or between two."""


class Impossible(RemoteWireError):
    """More records or headers than the bytes there are can hold."""


class Outline(NamedTuple):
    """What a leader wants to know of a record."""

    offset_delta: int
    timestamp_delta: int
    has_key: bool
    fields_at: int
    """Key, value and headers stand from here to `end`."""
    end: int


def require_possible(count: int, size: int) -> None:
    """Oversized for more records than anybody goes through; RemoteWireError if they would not even fit."""
    if count > SKIMMED_MAX:
        raise too_many(count, size, "records")


def walk(
    body: Bytes,
    count: int,
    *,
    by_fields: bool = False,
    at_most: int = WALKED_MAX,
    behind: Skimmed = NONE,
) -> Iterator[Outline]:
    """One after the other, but for those known to be in order; RemoteWireError for what is not `count` records and
    nothing else, Oversized if more would have to be read than `at_most` records and headers. Who goes by the fields
    alone does not hold the length of a record against them."""
    known, at = behind
    begin, end, length = at, len(body), 0
    left = at_most
    try:
        for number in range(known, count):
            begin = at
            try:
                length, at = read_int(body, at)
            except RemoteWireError:
                raise Endless(f"the record at {begin} has a length that does not end") from None
            stop = at + length
            if stop > end and not by_fields:
                raise Short(f"a record of {length} bytes in {end - at}", in_record=True)
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
                raise too_many(count - number - 1, end - at, "records")
            if at != stop and not by_fields:
                raise RemoteWireError(f"a record says it ends at {stop}, its fields end at {at}")
            yield Outline(offset_delta, timestamp_delta, key_size >= 0, fields_at, at)
    except IndexError:
        if at > begin and not by_fields:  # the record is there, its fields go on behind it
            raise RemoteWireError(f"a record is longer than the {length} bytes it says") from None
        why = f"the batch ends before the last of {count} records"
        raise Short(why, in_record=at > begin) from None
    if at != end:
        raise RemoteWireError(f"{end - at} bytes behind the last of {count} records")


def too_many(count: int, room: int, what: str) -> RemoteWireError:
    """More than can be looked at; or more than there can be, which is seen at once."""
    size = RECORD_BYTES_MIN if what == "records" else HEADER_BYTES_MIN
    if count * size > room:
        return Impossible(f"{count} more {what} in {room} bytes")
    return Oversized(f"{count} more {what}: too many to look at")


def skip_record_headers(body: Bytes, at: int, count: int, at_most: int) -> int:
    if count < 0:
        raise RemoteWireError(f"{count} record headers")
    for number in range(count):
        if number > at_most:
            raise too_many(count - number, len(body) - at, "headers")
        name_size, at = read_int(body, at)
        if name_size < 0:
            raise RemoteWireError("a record header without a name")
        value_size, at = read_int(body, at + name_size)
        at += max(value_size, 0)
    if at > len(body):
        raise IndexError
    return at


def read_int(body: Bytes, at: int) -> tuple[int, int]:
    doubled, end = read_digits(body, at)
    if end - at > INT_BYTES_MAX:
        raise RemoteWireError("a varint longer than 32 bits")
    doubled &= 0xFFFF_FFFF
    return (doubled >> 1) ^ -(doubled & 1), end


def read_long(body: Bytes, at: int) -> tuple[int, int]:
    doubled, end = read_digits(body, at)
    doubled &= 0xFFFF_FFFF_FFFF_FFFF
    return (doubled >> 1) ^ -(doubled & 1), end


def read_digits(body: Bytes, at: int) -> tuple[int, int]:
    """What a varint stands for, doubled. Its last byte may have more bits than there is room for."""
    value = 0
    for shift in range(0, 7 * LONG_BYTES_MAX, 7):
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise RemoteWireError("a varint longer than 64 bits")
