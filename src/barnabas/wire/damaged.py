"""Packed records, also where the packing is damaged.

Kafka unpacks a batch while it reads the records. If it comes to a broken one before it comes to the damage, that is
what it complains of. To say the same, as much is unpacked here as Kafka gets to see: its streams hand out what they
have unpacked in steps, and the step in which they fail is lost.

    gzip     8 KB are read at a time, up to 16 KB of what they unpack to are handed out
    snappy   blocks, which are handed out 2 KB at a time
    lz4      blocks; a checksum of all of them is not looked at
    zstd     blocks, which are handed out 16 KB at a time, the next one being opened with the last of these
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left
from itertools import islice
from typing import NamedTuple

import cramjam

from barnabas.errors import RemoteWireError
from barnabas.wire.compression import (
    ANY_NUMBER,
    LZ4_FLAGS_AT,
    LZ4_MAGIC,
    LZ4_SIZE,
    LZ4_STORED,
    ROOM_BYTES,
    ROOM_IS_FULL,
    XERIAL_MAGIC,
    Bytes,
    Compression,
    Damaged,
    Lz4Flag,
    Oversized,
    decompress,
    gzip_steps,
    plain_snappy_size,
    xerial_blocks,
)
from barnabas.wire.contents import SKIMMED_MAX, Impossible, Short, walk
from barnabas.wire.skim import skim

PIECES_MAX = 2_000
"""Of what is packed in more, and damaged, no more is looked at."""
GZIP_READ_BYTES, GZIP_STEP_BYTES = 8 << 10, 16 << 10
SNAPPY_STEP_BYTES = 2 << 10
ZSTD_READ_BYTES, ZSTD_STEP_BYTES = (128 << 10) + 3, 16 << 10
LZ4_BLOCK_BYTES_MAX = {0x40: 64 << 10, 0x50: 256 << 10, 0x60: 1 << 20, 0x70: 4 << 20}
LZ4_OF_THE_WHOLE = int(Lz4Flag.CONTENT_SIZE | Lz4Flag.CONTENT_CHECKSUM)
LZ4_END = LZ4_SIZE.pack(0)
LZ4_VERSION, LZ4_UNKNOWN_FLAGS = 0x40, 0xC3
XXH32_PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
MASK = 0xFFFF_FFFF
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPED = b"\x2a\x4d\x18"
"""Behind a byte from 0x50 to 0x5f: a frame that holds nothing."""
ZSTD_REPEATED = 1
"""The kind of block that is one byte again and again."""
CUT_SHORT, NO_FRAME = "incomplete frame", "Unknown frame descriptor"
"""What cramjam says of zstd that ends too early, or does not begin."""


class Remains(NamedTuple):
    plain: bytes
    is_all: bool = False
    breaks_record: bool = False
    """Kafka takes the damage for the record's that it is about to read."""


def unpack(
    codec: Compression,
    packed: memoryview,
    count: int,
    *,
    limit: int,
    pieces: int = ANY_NUMBER,
    by_fields: bool = True,
) -> bytes:
    """What is to be `count` records. Damaged if it cannot be unpacked; another RemoteWireError if one of the records is
    broken that stand before the damage."""
    try:
        return decompress(codec, packed, limit=limit, pieces=pieces)
    except Oversized:
        raise
    except Damaged:
        found = remains(codec, packed, limit)
        if found.is_all:
            return found.plain
        require_no_broken_record(found, count, by_fields)
        raise


def require_no_broken_record(found: Remains, count: int, by_fields: bool) -> None:
    known = skim(found.plain, min(count, SKIMMED_MAX))
    try:
        for _ in walk(found.plain, count, by_fields=by_fields, behind=known):
            pass
    except Short as error:
        if by_fields and found.breaks_record and error.in_record:
            raise
    except (Impossible, Oversized):
        pass  # there may have been more behind the damage


def remains(codec: Compression, packed: memoryview, limit: int) -> Remains:
    try:
        match codec:
            case Compression.GZIP:
                return Remains(remains_of_gzip(bytes(packed), limit))
            case Compression.SNAPPY:
                return Remains(remains_of_snappy(packed, limit))
            case Compression.LZ4:
                return remains_of_lz4(packed, limit)
            case Compression.ZSTD:
                return remains_of_zstd(packed, limit)
            case Compression.NONE:
                return Remains(bytes(packed), is_all=True)
    except (RemoteWireError, struct.error, IndexError):
        return Remains(b"")


def remains_of_gzip(packed: bytes, limit: int) -> bytes:
    plain = bytearray()
    steps = gzip_steps(packed, PIECES_MAX, reads=GZIP_READ_BYTES, step_bytes=GZIP_STEP_BYTES)
    try:
        for step in steps:
            plain += step
            if len(plain) > limit:
                break
    except (Damaged, zlib.error, struct.error):
        pass
    return bytes(plain)


def remains_of_snappy(packed: memoryview, limit: int) -> bytes:
    plain = bytearray()
    if packed[: len(XERIAL_MAGIC)] == XERIAL_MAGIC:
        try:
            for block in islice(xerial_blocks(packed), PIECES_MAX):
                plain_snappy_size(block, limit - len(plain))
                plain += bytes(cramjam.snappy.decompress_raw(block))
        except (RemoteWireError, cramjam.DecompressionError):
            pass
    return bytes(plain[: len(plain) // SNAPPY_STEP_BYTES * SNAPPY_STEP_BYTES])


def remains_of_lz4(packed: memoryview, limit: int) -> Remains:
    """Block by block, each as a frame of its own."""
    flags, sizes = packed[LZ4_FLAGS_AT], packed[LZ4_FLAGS_AT + 1]
    at = LZ4_FLAGS_AT + (10 if flags & Lz4Flag.CONTENT_SIZE else 2)
    is_known = (
        packed[:LZ4_FLAGS_AT] == LZ4_MAGIC
        and flags & LZ4_UNKNOWN_FLAGS == LZ4_VERSION
        and sizes in LZ4_BLOCK_BYTES_MAX
    )
    if not is_known or packed[at] != lz4_checksum(packed[LZ4_FLAGS_AT:at]):
        return Remains(b"")
    at += 1
    described = bytes((flags & ~LZ4_OF_THE_WHOLE, sizes))
    head = LZ4_MAGIC + described + bytes((lz4_checksum(described),))
    behind = LZ4_SIZE.size if flags & Lz4Flag.BLOCK_CHECKSUM else 0
    plain = bytearray()
    for _ in range(PIECES_MAX):
        if len(plain) > limit or at + LZ4_SIZE.size > len(packed):
            break
        size = LZ4_SIZE.unpack_from(packed, at)[0] & ~LZ4_STORED
        end = at + LZ4_SIZE.size + size
        if not size:
            last = end + LZ4_SIZE.size if flags & Lz4Flag.CONTENT_CHECKSUM else end
            is_all = last <= len(packed)
            return Remains(bytes(plain), is_all, breaks_record=not is_all)
        if end <= len(packed) < end + behind:
            return Remains(bytes(plain), breaks_record=True)
        frame = head + packed[at : end + behind] + LZ4_END
        try:
            plain += decompress(Compression.LZ4, frame, limit=LZ4_BLOCK_BYTES_MAX[sizes])
        except Damaged:
            break
        at = end + behind
    return Remains(bytes(plain))


def lz4_checksum(described: Bytes) -> int:
    return short_xxh32(described) >> 8 & 0xFF


def short_xxh32(data: Bytes) -> int:
    """The checksum of LZ4, for less than 16 bytes."""
    value = XXH32_PRIMES[4] + len(data)
    words = len(data) // 4 * 4
    for (word,) in LZ4_SIZE.iter_unpack(data[:words]):
        value = rotated(value + word * XXH32_PRIMES[2], 17) * XXH32_PRIMES[3]
    for byte in data[words:]:
        value = rotated(value + byte * XXH32_PRIMES[4], 11) * XXH32_PRIMES[0]
    value &= MASK
    value = (value ^ value >> 15) * XXH32_PRIMES[1] & MASK
    value = (value ^ value >> 13) * XXH32_PRIMES[2] & MASK
    return value ^ value >> 16


def rotated(value: int, bits: int) -> int:
    value &= MASK
    return (value << bits | value >> (32 - bits)) & MASK


def remains_of_zstd(packed: memoryview, limit: int) -> Remains:
    """Frame by frame: Kafka begins a new step with each. One that is cut short is nothing to it, if the end of the one
    before was read at once with what there is of it."""
    plain = bytearray()
    at = 0
    for _ in range(PIECES_MAX):
        end = behind_zstd_frame(packed, at)
        if not end:
            break
        try:
            plain += decompress(Compression.ZSTD, packed[at:end], limit=limit - len(plain))
        except Damaged:
            break
        at = end
    rest, why = remains_of_zstd_frame(packed[at:], limit - len(plain))
    if CUT_SHORT in why or NO_FRAME in why:
        is_all = CUT_SHORT in why and 0 < len(packed) - at <= len(packed) % ZSTD_READ_BYTES
        return Remains(bytes(plain) + rest, is_all=is_all and at > 0)
    steps = max(0, len(rest) - 1) // ZSTD_STEP_BYTES
    return Remains(bytes(plain) + rest[: steps * ZSTD_STEP_BYTES])


def behind_zstd_frame(packed: memoryview, at: int) -> int:
    """0 if it does not end."""
    if packed[at + 1 : at + 4] == ZSTD_SKIPPED and packed[at] >> 4 == 5 and len(packed) - at >= 8:
        end = at + 8 + int.from_bytes(packed[at + 4 : at + 8], "little")
        return end if end <= len(packed) else 0
    if packed[at : at + 4] != ZSTD_MAGIC or len(packed) - at <= 5:
        return 0
    described = packed[at + 4]
    is_single = described >> 5 & 1
    sizes = 1 << (described >> 6) if described >> 6 or is_single else 0
    at += 5 + (not is_single) + (0, 1, 2, 4)[described & 3] + sizes
    while True:
        head = int.from_bytes(packed[at : at + 3], "little")
        at += 3 + (1 if head >> 1 & 3 == ZSTD_REPEATED else head >> 3)
        if at > len(packed):
            return 0
        if head & 1:
            at += 4 if described & 4 else 0
            return at if at <= len(packed) else 0


def remains_of_zstd_frame(packed: memoryview, limit: int) -> tuple[bytes, str]:
    """cramjam does not tell how far it came. So it is let into two rooms that are filled differently: up to there both
    are the same."""
    size = min(ROOM_BYTES, limit)
    while True:
        rooms = [bytearray(filling) * size for filling in (b"\x00", b"\xff")]
        why = ""
        for room in rooms:
            try:
                cramjam.zstd.decompress_into(packed, room)
            except cramjam.DecompressionError as error:
                why = str(error)
        if ROOM_IS_FULL not in why or size >= limit:
            break
        size = min(limit, size * 4)
    written = bisect_left(range(size), True, key=lambda at: rooms[0][at] != rooms[1][at])
    return bytes(memoryview(rooms[0])[:written]), why
