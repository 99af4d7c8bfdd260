"""The protocol's primitive types: how each stands on the wire, plain or compact, nullable or not.

Readers take the data and a position and return the value and the position behind it. They hold every size and count
against the bytes that remain before they make anything of it; running off the end may also surface as struct.error or
IndexError, and bad text as UnicodeDecodeError, which the doors (codec.py, headers.py, fast/) turn into RemoteWireError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from barnabas.errors import LocalWireError, RemoteWireError
from barnabas.model import ZERO_ID

Append = Callable[[bytes], None]
ReadSize = Callable[[memoryview, int], tuple[int, int]]

# ---- sizes and varints ----------------------------------------------------------------------------------------

STRING_MAX = 0x7FFF
UNKNOWN_TAGS_MAX = 128
FEW = 8
REMEMBERED = 1024

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")


def uvarint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    if number < 0x20_0000:
        return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_uvarint(data: memoryview, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    number = byte & 0x7F
    byte = data[at + 1]
    if byte < 0x80:
        return number | byte << 7, at + 2
    number |= (byte & 0x7F) << 7
    for index in range(2, 5):
        byte = data[at + index]
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if number > 0xFFFF_FFFF:
                break
            return number, at + index + 1
    raise RemoteWireError(f"varint at {at} is longer than 32 bits")


def read_uvarlong(data: memoryview, at: int) -> tuple[int, int]:
    number = 0
    for index in range(10):
        byte = data[at + index]
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if number > 0xFFFF_FFFF_FFFF_FFFF:
                break
            return number, at + index + 1
    raise RemoteWireError(f"varint at {at} is longer than 64 bits")


SMALL_SIZES = tuple(uvarint(size + 1) for size in range(256))


def compact_size(size: int) -> bytes:
    """The compact form of a size or count; -1 is null."""
    return SMALL_SIZES[size] if 0 <= size < 256 else uvarint(size + 1)


def read_compact_size(data: memoryview, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte - 1, at + 1
    size, at = read_uvarint(data, at)
    return size - 1, at


def read_size16(data: memoryview, at: int) -> tuple[int, int]:
    return INT16.unpack_from(data, at)[0], at + 2


def read_size32(data: memoryview, at: int) -> tuple[int, int]:
    return INT32.unpack_from(data, at)[0], at + 4


def sizes(flexible: bool, short: bool = False) -> tuple[ReadSize, Callable[[int], bytes], int]:
    """Reader, writer and fewest bytes of a size."""
    if flexible:
        return read_compact_size, compact_size, 1
    return (read_size16, INT16.pack, 2) if short else (read_size32, INT32.pack, 4)


def read_count(data: memoryview, at: int, flexible: bool, element_minimum: int) -> tuple[int, int]:
    """The count of an array that cannot be null."""
    count, at = read_compact_size(data, at) if flexible else read_size32(data, at)
    if count < 0 or count * element_minimum > len(data) - at:
        raise RemoteWireError(f"{count} elements at {at} of {len(data)}")
    return count, at


def read_tags(data: memoryview, at: int) -> tuple[list[tuple[int, int, int]], int]:
    """(tag, start, end) of each tagged field, and the position behind them all."""
    count, at = read_uvarint(data, at)
    if count > UNKNOWN_TAGS_MAX:
        raise RemoteWireError(f"{count} tagged fields at {at}")
    found = []
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        if size > len(data) - at:
            raise RemoteWireError(f"tag {tag} of {size} bytes at {at} of {len(data)}")
        found.append((tag, at, at + size))
        at += size
    return found, at


def skip_tags(data: memoryview, at: int) -> int:
    return read_tags(data, at)[1] if data[at] else at + 1


@lru_cache(maxsize=4096)
def packed_name(name: str, flexible: bool) -> bytes:
    """A string that is sent again and again, such as a topic's name."""
    raw = name.encode()
    if len(raw) > STRING_MAX:
        raise LocalWireError(f"string of {len(raw)} bytes")
    return (compact_size(len(raw)) if flexible else INT16.pack(len(raw))) + raw


# ---- one type -------------------------------------------------------------------------------------------------


class Wire(NamedTuple):
    """How one type stands on the wire in one version."""

    read: Callable[[memoryview, int], tuple[Any, int]]
    write: Callable[[Any, Append], None]
    minimum: int
    """The fewest bytes a value takes: what an array's count is checked with."""
    letter: str = ""
    """For fixed-width numbers, so that neighbours are packed in one go."""


def fixed(letter: str) -> Wire:
    number = struct.Struct(">" + letter)
    unpack_from, pack, size = number.unpack_from, number.pack, number.size

    def read(data: memoryview, at: int) -> tuple[Any, int]:
        return unpack_from(data, at)[0], at + size

    def write(value: Any, append: Append) -> None:
        append(pack(value))

    return Wire(read, write, size, letter)


def read_uuid(data: memoryview, at: int) -> tuple[UUID, int]:
    raw = bytes(data[at : at + 16])
    if len(raw) < 16:
        raise RemoteWireError(f"no room for a UUID at {at}")
    return uuid_of(raw), at + 16


@lru_cache(maxsize=4096)
def uuid_of(raw: bytes) -> UUID:
    """Topic ids come again and again, and making one takes longer than finding it."""
    return UUID(bytes=raw) if any(raw) else ZERO_ID


def write_uuid(value: UUID, append: Append) -> None:
    append(value.bytes)


def string(flexible: bool, nullable: bool) -> Wire:
    read_size, pack_size, minimum = sizes(flexible, short=True)

    def read(data: memoryview, at: int) -> tuple[str | None, int]:
        size, at = read_size(data, at)
        end = at + size
        if size < 0:
            return null(nullable, size, at)
        if end > len(data) or size > STRING_MAX:
            raise RemoteWireError(f"string of {size} bytes at {at} of {len(data)}")
        return str(data[at:end], "utf-8"), end

    def write(value: str | None, append: Append) -> None:
        if value is None:
            append(pack_null(nullable, pack_size))
            return
        raw = value.encode()
        if len(raw) > STRING_MAX:
            raise LocalWireError(f"string of {len(raw)} bytes")
        append(pack_size(len(raw)))
        append(raw)

    return Wire(read, write, minimum)


def blob(flexible: bool, nullable: bool) -> Wire:
    read_size, pack_size, minimum = sizes(flexible)

    def read(data: memoryview, at: int) -> tuple[memoryview | None, int]:
        size, at = read_size(data, at)
        end = at + size
        if size < 0:
            return null(nullable, size, at)
        if end > len(data):
            raise RemoteWireError(f"{size} bytes at {at} of {len(data)}")
        return data[at:end], end

    def write(value: bytes | None, append: Append) -> None:
        if value is None:
            append(pack_null(nullable, pack_size))
            return
        append(pack_size(len(value)))
        append(value)

    return Wire(read, write, minimum)


Unpack = Callable[[memoryview, int], tuple[Any, ...]]
Pack = Callable[[tuple[Any, ...]], bytes]


@cache
def few_numbers(letter: str, flexible: bool) -> tuple[tuple[Unpack, ...], Pack]:
    """How short arrays of numbers are read, by their length, and written. The replicas of thousands of partitions are
    the same few over and over, and are packed once."""
    _, pack_size, _ = sizes(flexible)

    @lru_cache(REMEMBERED)
    def pack(values: tuple[Any, ...]) -> bytes:
        return pack_size(len(values)) + struct.pack(f">{len(values)}{letter}", *values)

    return tuple(struct.Struct(f">{n}{letter}").unpack_from for n in range(FEW + 1)), pack


def not_numbers(_: tuple[Any, ...]) -> bytes:
    raise AssertionError("only numbers are packed together")


def array(element: Wire, flexible: bool, nullable: bool) -> Wire:
    read_size, pack_size, minimum = sizes(flexible)
    read_element, write_element, letter = element.read, element.write, element.letter
    element_minimum = max(element.minimum, 1)
    unpack_few, pack_few = few_numbers(letter, flexible) if letter else ((), not_numbers)

    def read(data: memoryview, at: int) -> tuple[tuple[Any, ...] | None, int]:
        count, at = read_size(data, at)
        if count < 0:
            return null(nullable, count, at)
        if count * element_minimum > len(data) - at:
            raise RemoteWireError(f"{count} elements at {at} of {len(data)}")
        if letter:
            end = at + count * element_minimum
            if count <= FEW:
                return unpack_few[count](data, at), end
            return struct.unpack_from(f">{count}{letter}", data, at), end
        values = []
        for _ in range(count):
            value, at = read_element(data, at)
            values.append(value)
        return tuple(values), at

    def write(values: tuple[Any, ...] | None, append: Append) -> None:
        if values is None:
            append(pack_null(nullable, pack_size))
            return
        if letter and len(values) <= FEW:
            append(pack_few(tuple(values)))
            return
        append(pack_size(len(values)))
        if letter:
            append(struct.pack(f">{len(values)}{letter}", *values))
        else:
            for value in values:
                write_element(value, append)

    return Wire(read, write, minimum)


def nullable_struct(inner: Wire) -> Wire:
    """One byte ahead of the struct: 1, or -1 for null."""

    def read(data: memoryview, at: int) -> tuple[Any, int]:
        if data[at] > 0x7F:
            return None, at + 1
        return inner.read(data, at + 1)

    def write(value: Any, append: Append) -> None:
        append(b"\xff" if value is None else b"\x01")
        if value is not None:
            inner.write(value, append)

    return Wire(read, write, 1)


def null(nullable: bool, size: int, at: int) -> tuple[None, int]:
    if size == -1 and nullable:
        return None, at
    raise RemoteWireError(f"{'null' if size == -1 else f'size {size}'} before {at}")


def pack_null(nullable: bool, pack_size: Callable[[int], bytes]) -> bytes:
    if not nullable:
        raise LocalWireError("null where the protocol has none")
    return pack_size(-1)
