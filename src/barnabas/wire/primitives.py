"""Codecs of the protocol's primitive types: plain or compact, nullable or not.

A reader takes the data and a position, and returns the value and the position after it. It checks sizes and counts
against the remaining bytes before it allocates memory for them. It may raise struct.error or IndexError if the data
ends too early, and UnicodeDecodeError for invalid UTF-8. The callers (codec.py, headers.py, fast/) turn these into
RemoteWireError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from barnabas.errors import LocalWireError, RemoteWireError
from barnabas.model import ZERO_ID

Append = Callable[[bytes], None]
ReadSize = Callable[[memoryview, int], tuple[int, int]]

# ---- sizes and varints ----------------------------------------------------------------------------------------

STRING_MAX: Final = 0x7FFF
TAGS_MAX: Final = 128
SHORT_ARRAY_MAX: Final = 8
CACHED_ARRAYS_MAX: Final = 1024

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")


def uvarint(number: int) -> bytes:
    """Encode an unsigned varint."""
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


def read_uvarint32(data: memoryview, at: int) -> tuple[int, int]:
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


SMALL_SIZES: Final = tuple(uvarint(size + 1) for size in range(256))


def compact_size(size: int) -> bytes:
    """Return the compact form of a size or count; -1 is null."""
    return SMALL_SIZES[size] if 0 <= size < 256 else uvarint(size + 1)


def read_compact_size(data: memoryview, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte - 1, at + 1
    size, at = read_uvarint32(data, at)
    return size - 1, at


def read_size16(data: memoryview, at: int) -> tuple[int, int]:
    return INT16.unpack_from(data, at)[0], at + 2


def read_size32(data: memoryview, at: int) -> tuple[int, int]:
    return INT32.unpack_from(data, at)[0], at + 4


def size_functions(
    flexible: bool, short: bool = False
) -> tuple[ReadSize, Callable[[int], bytes], int]:
    """Return the reader, the writer and the minimum bytes of a size. `short` means 2 bytes instead of 4."""
    if flexible:
        return read_compact_size, compact_size, 1
    return (read_size16, INT16.pack, 2) if short else (read_size32, INT32.pack, 4)


def read_count(
    data: memoryview, at: int, flexible: bool, element_min_bytes: int
) -> tuple[int, int]:
    """Read the element count of an array that cannot be null. Raises RemoteWireError if the data is too short."""
    count, at = read_compact_size(data, at) if flexible else read_size32(data, at)
    if count < 0 or count * element_min_bytes > len(data) - at:
        raise RemoteWireError(f"array at {at} has {count} elements, data has {len(data)} bytes")
    return count, at


def read_tags(data: memoryview, at: int) -> tuple[list[tuple[int, int, int]], int]:
    """Return (tag, start, end) of each tagged field, and the position after the last one."""
    count, at = read_uvarint32(data, at)
    if count > TAGS_MAX:
        raise RemoteWireError(f"{count} tagged fields at {at}; at most {TAGS_MAX} are allowed")
    found = []
    for _ in range(count):
        tag, at = read_uvarint32(data, at)
        size, at = read_uvarint32(data, at)
        if size > len(data) - at:
            raise RemoteWireError(f"tag {tag} at {at} has {size} bytes, data has {len(data)} bytes")
        found.append((tag, at, at + size))
        at += size
    return found, at


def skip_tags(data: memoryview, at: int) -> int:
    return read_tags(data, at)[1] if data[at] else at + 1


@lru_cache(maxsize=4096)
def pack_name(name: str, flexible: bool) -> bytes:
    """Encode a string that is sent often, such as the name of a topic. The result is cached."""
    raw = name.encode()
    if len(raw) > STRING_MAX:
        raise LocalWireError(f"string has {len(raw)} bytes; at most {STRING_MAX} are allowed")
    return (compact_size(len(raw)) if flexible else INT16.pack(len(raw))) + raw


# ---- codecs ---------------------------------------------------------------------------------------------------


class TypeCodec(NamedTuple):
    """Functions to read and write values of one type in one version."""

    read: Callable[[memoryview, int], tuple[Any, int]]
    write: Callable[[Any, Append], None]
    min_bytes: int
    """Minimum bytes of a value, to check the element count of an array."""
    letter: str = ""
    """Format character of a fixed-width number in `struct`, to pack consecutive numbers in one call."""


def fixed_codec(letter: str) -> TypeCodec:
    number = struct.Struct(">" + letter)
    unpack_from, pack, size = number.unpack_from, number.pack, number.size

    def read(data: memoryview, at: int) -> tuple[Any, int]:
        return unpack_from(data, at)[0], at + size

    def write(value: Any, append: Append) -> None:
        append(pack(value))

    return TypeCodec(read, write, size, letter)


def read_uuid(data: memoryview, at: int) -> tuple[UUID, int]:
    raw = bytes(data[at : at + 16])
    if len(raw) < 16:
        raise RemoteWireError(f"UUID at {at} needs 16 bytes, got {len(raw)}")
    return make_uuid(raw), at + 16


@lru_cache(maxsize=4096)
def make_uuid(raw: bytes) -> UUID:
    """Return a cached UUID: the same topic ids recur, and creating a UUID takes longer than a lookup."""
    return UUID(bytes=raw) if any(raw) else ZERO_ID


def write_uuid(value: UUID, append: Append) -> None:
    append(value.bytes)


def string_codec(flexible: bool, nullable: bool) -> TypeCodec:
    read_size, pack_size, min_bytes = size_functions(flexible, short=True)

    def read(data: memoryview, at: int) -> tuple[str | None, int]:
        size, at = read_size(data, at)
        end = at + size
        if size < 0:
            return read_null(nullable, size, at)
        if end > len(data) or size > STRING_MAX:
            raise RemoteWireError(
                f"string at {at} has {size} bytes, data has {len(data)} bytes; at most {STRING_MAX} are allowed"
            )
        return str(data[at:end], "utf-8"), end

    def write(value: str | None, append: Append) -> None:
        if value is None:
            append(pack_null(nullable, pack_size))
            return
        raw = value.encode()
        if len(raw) > STRING_MAX:
            raise LocalWireError(f"string has {len(raw)} bytes; at most {STRING_MAX} are allowed")
        append(pack_size(len(raw)))
        append(raw)

    return TypeCodec(read, write, min_bytes)


def bytes_codec(flexible: bool, nullable: bool) -> TypeCodec:
    read_size, pack_size, min_bytes = size_functions(flexible)

    def read(data: memoryview, at: int) -> tuple[memoryview | None, int]:
        size, at = read_size(data, at)
        end = at + size
        if size < 0:
            return read_null(nullable, size, at)
        if end > len(data):
            raise RemoteWireError(
                f"bytes field at {at} has {size} bytes, data has {len(data)} bytes"
            )
        return data[at:end], end

    def write(value: Any, append: Append) -> None:
        if value is None:
            append(pack_null(nullable, pack_size))
            return
        append(pack_size(len(value)))
        append(value)

    return TypeCodec(read, write, min_bytes)


Unpack = Callable[[memoryview, int], tuple[Any, ...]]
Pack = Callable[[tuple[Any, ...]], bytes]


@cache
def short_array_functions(letter: str, flexible: bool) -> tuple[tuple[Unpack, ...], Pack]:
    """Return a reader for each length up to SHORT_ARRAY_MAX, and a cached writer: many replica lists are equal."""
    _, pack_size, _ = size_functions(flexible)

    @lru_cache(CACHED_ARRAYS_MAX)
    def pack(values: tuple[Any, ...]) -> bytes:
        return pack_size(len(values)) + struct.pack(f">{len(values)}{letter}", *values)

    return tuple(
        struct.Struct(f">{n}{letter}").unpack_from for n in range(SHORT_ARRAY_MAX + 1)
    ), pack


def reject_non_numbers(_: tuple[Any, ...]) -> bytes:
    raise AssertionError("only arrays of numbers are packed in one call")


def array_codec(element: TypeCodec, flexible: bool, nullable: bool) -> TypeCodec:
    read_size, pack_size, min_bytes = size_functions(flexible)
    read_element, write_element, letter = element.read, element.write, element.letter
    element_min_bytes = max(element.min_bytes, 1)
    unpack_few, pack_few = (
        short_array_functions(letter, flexible) if letter else ((), reject_non_numbers)
    )

    def read(data: memoryview, at: int) -> tuple[tuple[Any, ...] | None, int]:
        count, at = read_size(data, at)
        if count < 0:
            return read_null(nullable, count, at)
        if count * element_min_bytes > len(data) - at:
            raise RemoteWireError(f"array at {at} has {count} elements, data has {len(data)} bytes")
        if letter:
            end = at + count * element_min_bytes
            if count <= SHORT_ARRAY_MAX:
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
        if letter and len(values) <= SHORT_ARRAY_MAX:
            append(pack_few(tuple(values)))
            return
        append(pack_size(len(values)))
        if letter:
            append(struct.pack(f">{len(values)}{letter}", *values))
        else:
            for value in values:
                write_element(value, append)

    return TypeCodec(read, write, min_bytes)


def nullable_struct_codec(inner: TypeCodec) -> TypeCodec:
    """Codec with one byte before the struct: 1, or -1 for null."""

    def read(data: memoryview, at: int) -> tuple[Any, int]:
        if data[at] > 0x7F:
            return None, at + 1
        return inner.read(data, at + 1)

    def write(value: Any, append: Append) -> None:
        append(b"\xff" if value is None else b"\x01")
        if value is not None:
            inner.write(value, append)

    return TypeCodec(read, write, 1)


def read_null(nullable: bool, size: int, at: int) -> tuple[None, int]:
    if size == -1 and nullable:
        return None, at
    raise RemoteWireError(f"{'null' if size == -1 else f'size {size}'} before {at} is not allowed")


def pack_null(nullable: bool, pack_size: Callable[[int], bytes]) -> bytes:
    if not nullable:
        raise LocalWireError("null in a field that is not nullable in this version")
    return pack_size(-1)
