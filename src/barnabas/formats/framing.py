"""Confluent's wire format: a magic byte 0, the schema id in 4 bytes, then the encoded value. Pure.

In Protobuf, message indexes follow the schema id. They are the path from the file to the type of the message:
[1, 0] is the first type that is nested in the second type of the file. They are zigzag varints, first their number.
The path [0] is written as a single 0.
"""

from __future__ import annotations

import struct

from barnabas.formats.problems import DecodeError

MAGIC = 0
HEADER = struct.Struct(">BI")
VARINT_BYTES_MAX = 5
INDEXES_MAX = 100
"""Maximum depth of nested Protobuf types. Protobuf itself allows fewer."""


def frame_header(schema_id: int) -> bytes:
    return HEADER.pack(MAGIC, schema_id)


def split_header(data: bytes) -> tuple[int, int]:
    """Return the schema id and the position after it. Raises DecodeError."""
    if len(data) < HEADER.size:
        raise DecodeError(f"{len(data)} bytes are too short for a schema id")
    magic, schema_id = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise DecodeError(
            f"the first byte is {magic}, not 0, so there is no schema id; "
            "if the producer uses no registry, pass schema= without registry="
        )
    return schema_id, HEADER.size


def encode_indexes(indexes: tuple[int, ...]) -> bytes:
    if indexes == (0,):
        return b"\0"
    return b"".join(encode_varint(number << 1) for number in (len(indexes), *indexes))


def split_indexes(data: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """Return the message indexes and the position after them. Raises DecodeError."""
    count, position = read_index(data, position)
    if count == 0:
        return (0,), position
    if count > INDEXES_MAX:
        raise DecodeError(f"{count} message indexes are too many")
    indexes = []
    for _ in range(count):
        index, position = read_index(data, position)
        indexes.append(index)
    return tuple(indexes), position


def read_index(data: bytes, position: int) -> tuple[int, int]:
    """Return a zigzag varint that is not negative, and the position after it."""
    number = 0
    for step, byte in enumerate(data[position : position + VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << 7 * step
        if byte < 0x80:
            if number & 1:
                raise DecodeError("a message index is negative")
            return number >> 1, position + step + 1
    raise DecodeError("the message indexes are truncated or invalid")


def encode_varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
