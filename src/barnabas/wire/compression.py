"""The five codecs of a record batch, in the framings Kafka's clients use.

    gzip     the gzip format, possibly several members
    snappy   "xerial" blocks: a 16-byte head, then (length, raw snappy)*; a bare raw block is read as well,
             because librdkafka sends one
    lz4      the LZ4 frame format; we write independent blocks, since the Java client reads no others
    zstd     zstd frames, with or without the content size in their head

What is decompressed comes from strangers. A few bytes can stand for gigabytes, so no size that the sender claims
is believed: output grows in steps and stops at the smaller of `limit` and what an honest ratio allows.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum, IntFlag

import cramjam

from barnabas.errors import RemoteWireError

Bytes = bytes | bytearray | memoryview


class Damaged(RemoteWireError):
    """Compressed data that cannot be opened, or must not be."""


class Oversized(Damaged):
    """More than was allowed for it. Nothing else is known to be wrong with it."""


class Compression(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# Repetitive logs do compress a thousandfold; beyond that and beyond a size any honest batch fits in, it is a bomb.
RATIO_MAX = 1_000
ALWAYS_ALLOWED_BYTES = 16 << 20

ROOM_BYTES = 1 << 20
ROOM_IS_FULL = "write whole buffer"
"""What cramjam says then."""
ANY_NUMBER = 1 << 62

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEAD = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 << 10
LENGTH = struct.Struct(">i")
SNAPPY_RATIO_MAX = 64
GZIP_WINDOW_BYTES, GZIP_STEP_BYTES = 4 << 10, 1 << 20
GZIP_MAGIC = b"\x1f\x8b\x08"
GZIP_HEAD_BYTES = 10
GZIP_SHORT, GZIP_TRAILER = struct.Struct("<H"), struct.Struct("<II")
GZIP_MEMBER_BYTES_MIN = 19
"""Java does not look at what is shorter, and no whole one is."""
LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_FLAGS_AT = len(LZ4_MAGIC)
LZ4_SIZE = struct.Struct("<I")
LZ4_STORED = 0x8000_0000
"""In the size of a block: it is not packed."""


class GzipFlag(IntFlag):
    CHECKSUM = 0x02
    EXTRA = 0x04
    NAME = 0x08
    COMMENT = 0x10


class Lz4Flag(IntFlag):
    DICTIONARY = 0x01
    CONTENT_CHECKSUM = 0x04
    CONTENT_SIZE = 0x08
    BLOCK_CHECKSUM = 0x10
    INDEPENDENT = 0x20


def compress(codec: Compression, data: Bytes, level: int | None = None) -> bytes:
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            compressor = zlib.compressobj(-1 if level is None else level, wbits=31)
            return compressor.compress(data) + compressor.flush()
        case Compression.SNAPPY:
            return compress_xerial(data)
        case Compression.LZ4:
            frame = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
            frame.compress(bytes(data))
            return bytes(frame.finish())
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=level))


def decompress(codec: Compression, data: Bytes, *, limit: int, pieces: int = ANY_NUMBER) -> bytes:
    """The plain bytes, at most `limit` of them. Damaged for what is no such data, and for bombs. `pieces`: so many
    members of gzip, or blocks of snappy or LZ4, for who has no time to open many small ones. zstd's take none."""
    limit = min(limit, max(ALWAYS_ALLOWED_BYTES, len(data) * RATIO_MAX))
    try:
        match codec:
            case Compression.NONE:
                return within(limit, bytes(data))
            case Compression.GZIP:
                return decompress_gzip(memoryview(data), limit, pieces)
            case Compression.SNAPPY:
                return decompress_snappy(memoryview(data), limit, pieces)
            case Compression.LZ4:
                frame = first_lz4_frame(memoryview(data), pieces)
                return decompress_growing(cramjam.lz4.decompress_into, frame, limit)
            case Compression.ZSTD:  # no frames at all are fine, too
                return (
                    decompress_growing(cramjam.zstd.decompress_into, data, limit) if data else b""
                )
    except (cramjam.DecompressionError, zlib.error, struct.error) as error:
        raise Damaged(f"damaged {codec.name} data: {error}") from None


def too_large(limit: int) -> Oversized:
    return Oversized(f"decompresses to more than the {limit} bytes allowed for it")


def too_many() -> Oversized:
    return Oversized("packed in more pieces than are opened here")


def within(limit: int, data: bytes) -> bytes:
    if len(data) > limit:
        raise too_large(limit)
    return data


def decompress_gzip(data: memoryview, limit: int, pieces: int) -> bytes:
    plain = bytearray()
    for step in gzip_steps(bytes(data), pieces):
        plain += step
        if len(plain) > limit:
            raise too_large(limit)
    return bytes(plain)


def gzip_steps(
    data: bytes, pieces: int, *, reads: int = 0, step_bytes: int = GZIP_STEP_BYTES
) -> Iterator[bytes]:
    """What its members hold, a step at a time. What stands behind the last one is nothing, for the Java client as well.
    `reads`: how much is read at a time; if it does not matter, more and more."""
    at = behind_gzip_head(data, 0)
    for _ in range(pieces):
        member = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
        checksum = size = 0
        read = b""
        # What is read beyond a member is copied, so small ones are read in small bits.
        window = reads or GZIP_WINDOW_BYTES
        while True:
            step = member.decompress(read, step_bytes)
            read = member.unconsumed_tail
            if step:
                checksum, size = zlib.crc32(step, checksum), size + len(step)
                yield step
            if member.eof:
                break
            if not step and not read:
                read = data[at : at + window]
                at += len(read)
                window = reads or window * 16
                if not read:
                    raise Damaged("damaged GZIP data: it ends too early")
        at -= len(member.unused_data)
        if GZIP_TRAILER.unpack_from(data, at) != (checksum, size & 0xFFFF_FFFF):
            raise Damaged("damaged GZIP data: its checksum is wrong")
        at += GZIP_TRAILER.size
        if len(data) - at < GZIP_MEMBER_BYTES_MIN:
            return
        try:
            at = behind_gzip_head(data, at)
        except Damaged:
            return
    raise too_many()


def behind_gzip_head(data: bytes, at: int) -> int:
    head = data[at : at + GZIP_HEAD_BYTES]
    if len(head) < GZIP_HEAD_BYTES or not head.startswith(GZIP_MAGIC):
        raise Damaged("damaged GZIP data: it does not begin as it should")
    flags = head[3]
    begin, at = at, at + GZIP_HEAD_BYTES
    try:
        if flags & GzipFlag.EXTRA:
            at += 2 + GZIP_SHORT.unpack_from(data, at)[0]
        for text in (GzipFlag.NAME, GzipFlag.COMMENT):
            if flags & text:
                at = data.index(b"\0", at) + 1
        if flags & GzipFlag.CHECKSUM:
            if GZIP_SHORT.unpack_from(data, at)[0] != zlib.crc32(data[begin:at]) & 0xFFFF:
                raise Damaged("damaged GZIP data: the checksum of its head is wrong")
            at += GZIP_SHORT.size
    except (struct.error, ValueError):
        raise Damaged("damaged GZIP data: it ends in its head") from None
    return at


def require_readable(codec: Compression, data: memoryview) -> None:
    """Damaged for what we can unpack and the Java client cannot: LZ4 blocks that need others to be unpacked."""
    if codec is not Compression.LZ4 or len(data) <= LZ4_FLAGS_AT:
        return
    if not data[LZ4_FLAGS_AT] & Lz4Flag.INDEPENDENT:
        raise Damaged("blocks of LZ4 that need the ones before, which the Java client cannot read")


def first_lz4_frame(data: memoryview, pieces: int) -> memoryview:
    """What stands behind it is nothing, for the Java client as well."""
    if len(data) <= LZ4_FLAGS_AT or bytes(data[:LZ4_FLAGS_AT]) != LZ4_MAGIC:
        raise Damaged("damaged LZ4 data: it does not begin as a frame")
    flags = data[LZ4_FLAGS_AT]
    at = 15 if flags & Lz4Flag.CONTENT_SIZE else 7
    behind = 4 if flags & Lz4Flag.BLOCK_CHECKSUM else 0
    while size := LZ4_SIZE.unpack_from(data, at)[0] & ~LZ4_STORED:
        at += LZ4_SIZE.size + size + behind
        pieces -= 1
        if pieces < 0:
            raise too_many()
    return data[: at + LZ4_SIZE.size + (4 if flags & Lz4Flag.CONTENT_CHECKSUM else 0)]


rooms: list[bytearray] = []
"""To unpack into, one for each thread that does: fresh memory would cost as much again as unpacking."""


def decompress_growing(into: Callable[[Bytes, bytearray], int], data: Bytes, limit: int) -> bytes:
    """Try with the room there is, then with ever more. cramjam streams into what it is given and stops when that is
    full, so no more than `limit` is ever allocated, whatever the frame's head claims."""
    try:
        room = rooms.pop()
    except IndexError:
        room = bytearray(ROOM_BYTES)
    plain = room
    try:
        while True:
            try:
                written = into(data, plain)
            except cramjam.DecompressionError as error:
                if ROOM_IS_FULL not in str(error):
                    raise
                if len(plain) >= limit:
                    raise too_large(limit) from None
                plain = bytearray(min(limit, len(plain) * 4))
            else:
                return within(limit, bytes(memoryview(plain)[:written]))
    finally:
        rooms.append(room)


def compress_xerial(data: Bytes) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEAD]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts += (LENGTH.pack(len(block)), block)
    return b"".join(parts)


def decompress_snappy(view: memoryview, limit: int, pieces: int) -> bytes:
    if len(view) < len(XERIAL_HEAD) or bytes(view[:8]) != XERIAL_MAGIC:
        return decompress_raw_snappy(view, limit)
    total = 0
    blocks = []
    for block in xerial_blocks(view):
        size = plain_snappy_size(block, limit - total)
        blocks.append((block, total, total + size))
        total += size
        if len(blocks) > pieces:
            raise too_many()
    plain = bytearray(total)
    for block, start, end in blocks:
        cramjam.snappy.decompress_raw_into(block, memoryview(plain)[start:end])
    return bytes(plain)


def xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    """There may be another head between two of them, known by how it begins; a length that is cut short is nothing."""
    at = len(XERIAL_HEAD)
    while at + LENGTH.size <= len(view):
        if view[at : at + LENGTH.size] == XERIAL_MAGIC[: LENGTH.size]:
            at += len(XERIAL_HEAD)
            if at > len(view):
                raise Damaged("damaged SNAPPY data: it ends in a head")
            continue
        (length,) = LENGTH.unpack_from(view, at)
        at += LENGTH.size
        if not 0 <= length <= len(view) - at:
            raise Damaged(f"damaged SNAPPY data: a block of {length} bytes")
        yield view[at : at + length]
        at += length


def decompress_raw_snappy(block: memoryview, limit: int) -> bytes:
    plain_snappy_size(block, limit)
    return bytes(cramjam.snappy.decompress_raw(block))


def plain_snappy_size(block: memoryview, limit: int) -> int:
    """What a block claims. None can expand more than 64-fold, so a larger claim is a lie and not worth the memory."""
    claimed: int = cramjam.snappy.decompress_raw_len(block)
    if claimed > SNAPPY_RATIO_MAX * len(block):
        raise Damaged(f"damaged SNAPPY data: {len(block)} bytes claim to be {claimed}")
    if claimed > limit:
        raise too_large(limit)
    return claimed
