"""Decompression of record batches, also of partly corrupt ones.

Kafka decompresses a batch while it reads the records. If it reaches an invalid record before the corrupt data, it
returns the error of that record. To return the same error, this module decompresses as much as Kafka does. Kafka's
streams return their output in steps, and the output of the step in which they fail is lost.

    gzip     reads 8 KiB at a time and returns up to 16 KiB of output at a time
    snappy   decompresses a block and returns it 2 KiB at a time
    lz4      decompresses a block; the checksum of the whole content is not verified
    zstd     decompresses a block and returns it 16 KiB at a time; the last step also starts the next block
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
    BUFFER_BYTES,
    BUFFER_FULL_MESSAGE,
    LZ4_FLAGS_AT,
    LZ4_MAGIC,
    LZ4_SIZE,
    LZ4_UNCOMPRESSED,
    UNLIMITED,
    XERIAL_MAGIC,
    Bytes,
    Compression,
    DecompressionError,
    LimitExceeded,
    Lz4Flag,
    claimed_snappy_size,
    decompress,
    iter_gzip_steps,
    iter_xerial_blocks,
)
from barnabas.wire.contents import SKIMMED_MAX, ImpossibleCount, TruncatedRecords, walk_records
from barnabas.wire.skim import skim

PIECES_MAX = 2_000
"""Limit of members, blocks or frames that are decompressed from corrupt data."""
GZIP_READ_BYTES, GZIP_STEP_BYTES = 8 << 10, 16 << 10
SNAPPY_STEP_BYTES = 2 << 10
ZSTD_READ_BYTES, ZSTD_STEP_BYTES = (128 << 10) + 3, 16 << 10
LZ4_BLOCK_BYTES_MAX = {0x40: 64 << 10, 0x50: 256 << 10, 0x60: 1 << 20, 0x70: 4 << 20}
LZ4_WHOLE_FRAME_FLAGS = int(Lz4Flag.CONTENT_SIZE | Lz4Flag.CONTENT_CHECKSUM)
LZ4_END = LZ4_SIZE.pack(0)
LZ4_VERSION, LZ4_VERSION_MASK = 0x40, 0xC3
XXH32_PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
MASK = 0xFFFF_FFFF
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"
"""Last three bytes of the magic of a skippable frame. The first byte is 0x50 to 0x5f."""
ZSTD_RLE_BLOCK = 1
"""Type of a block that holds one byte to be repeated."""
INCOMPLETE_FRAME, NO_FRAME = "incomplete frame", "Unknown frame descriptor"
"""Parts of cramjam's error messages for zstd data that ends too early, or has no frame header."""


class SalvagedData(NamedTuple):
    """Uncompressed data up to the corrupt part."""

    plain: bytes
    is_complete: bool = False
    breaks_record: bool = False
    """Whether Kafka reports the corrupt data as an error of the record that it reads at this point."""


def unpack(
    codec: Compression,
    packed: memoryview,
    count: int,
    *,
    limit: int,
    pieces: int = UNLIMITED,
    ignore_lengths: bool = True,
) -> bytes:
    """Decompress `count` records.

    Raises DecompressionError for corrupt data, or another RemoteWireError if a record before the corrupt data is
    invalid. `ignore_lengths` is that of `walk_records`, `limit` and `pieces` are those of `decompress`.
    """
    try:
        return decompress(codec, packed, limit=limit, pieces=pieces)
    except LimitExceeded:
        raise
    except DecompressionError:
        found = salvage(codec, packed, limit)
        if found.is_complete:
            return found.plain
        require_no_broken_record(found, count, ignore_lengths)
        raise


def require_no_broken_record(found: SalvagedData, count: int, ignore_lengths: bool) -> None:
    known = skim(found.plain, min(count, SKIMMED_MAX))
    try:
        for _ in walk_records(found.plain, count, ignore_lengths=ignore_lengths, start=known):
            pass
    except TruncatedRecords as error:
        if ignore_lengths and found.breaks_record and error.in_record:
            raise
    except (ImpossibleCount, LimitExceeded):
        pass  # the missing records may be in the corrupt part


def salvage(codec: Compression, packed: memoryview, limit: int) -> SalvagedData:
    try:
        match codec:
            case Compression.GZIP:
                return SalvagedData(salvage_gzip(bytes(packed), limit))
            case Compression.SNAPPY:
                return SalvagedData(salvage_snappy(packed, limit))
            case Compression.LZ4:
                return salvage_lz4(packed, limit)
            case Compression.ZSTD:
                return salvage_zstd(packed, limit)
            case Compression.NONE:
                return SalvagedData(bytes(packed), is_complete=True)
    except (RemoteWireError, struct.error, IndexError):
        return SalvagedData(b"")


def salvage_gzip(packed: bytes, limit: int) -> bytes:
    plain = bytearray()
    steps = iter_gzip_steps(
        packed, PIECES_MAX, window_bytes=GZIP_READ_BYTES, step_bytes=GZIP_STEP_BYTES
    )
    try:
        for step in steps:
            plain += step
            if len(plain) > limit:
                break
    except (DecompressionError, zlib.error, struct.error):
        pass
    return bytes(plain)


def salvage_snappy(packed: memoryview, limit: int) -> bytes:
    plain = bytearray()
    if packed[: len(XERIAL_MAGIC)] == XERIAL_MAGIC:
        try:
            for block in islice(iter_xerial_blocks(packed), PIECES_MAX):
                claimed_snappy_size(block, limit - len(plain))
                plain += bytes(cramjam.snappy.decompress_raw(block))
        except (RemoteWireError, cramjam.DecompressionError):
            pass
    return bytes(plain[: len(plain) // SNAPPY_STEP_BYTES * SNAPPY_STEP_BYTES])


def salvage_lz4(packed: memoryview, limit: int) -> SalvagedData:
    """Decompress block by block, each as a frame of its own."""
    flags, sizes = packed[LZ4_FLAGS_AT], packed[LZ4_FLAGS_AT + 1]
    at = LZ4_FLAGS_AT + (10 if flags & Lz4Flag.CONTENT_SIZE else 2)
    is_known = (
        packed[:LZ4_FLAGS_AT] == LZ4_MAGIC
        and flags & LZ4_VERSION_MASK == LZ4_VERSION
        and sizes in LZ4_BLOCK_BYTES_MAX
    )
    if not is_known or packed[at] != lz4_checksum(packed[LZ4_FLAGS_AT:at]):
        return SalvagedData(b"")
    at += 1
    descriptor = bytes((flags & ~LZ4_WHOLE_FRAME_FLAGS, sizes))
    head = LZ4_MAGIC + descriptor + bytes((lz4_checksum(descriptor),))
    checksum_bytes = LZ4_SIZE.size if flags & Lz4Flag.BLOCK_CHECKSUM else 0
    plain = bytearray()
    for _ in range(PIECES_MAX):
        if len(plain) > limit or at + LZ4_SIZE.size > len(packed):
            break
        size = LZ4_SIZE.unpack_from(packed, at)[0] & ~LZ4_UNCOMPRESSED
        end = at + LZ4_SIZE.size + size
        if not size:
            last = end + LZ4_SIZE.size if flags & Lz4Flag.CONTENT_CHECKSUM else end
            is_complete = last <= len(packed)
            return SalvagedData(bytes(plain), is_complete, breaks_record=not is_complete)
        if end <= len(packed) < end + checksum_bytes:
            return SalvagedData(bytes(plain), breaks_record=True)
        frame = head + packed[at : end + checksum_bytes] + LZ4_END
        try:
            plain += decompress(Compression.LZ4, frame, limit=LZ4_BLOCK_BYTES_MAX[sizes])
        except DecompressionError:
            break
        at = end + checksum_bytes
    return SalvagedData(bytes(plain))


def lz4_checksum(descriptor: Bytes) -> int:
    return short_xxh32(descriptor) >> 8 & 0xFF


def short_xxh32(data: Bytes) -> int:
    """XXH32, the checksum of LZ4, of fewer than 16 bytes."""
    value = XXH32_PRIMES[4] + len(data)
    words = len(data) // 4 * 4
    for (word,) in LZ4_SIZE.iter_unpack(data[:words]):
        value = rotate_left(value + word * XXH32_PRIMES[2], 17) * XXH32_PRIMES[3]
    for byte in data[words:]:
        value = rotate_left(value + byte * XXH32_PRIMES[4], 11) * XXH32_PRIMES[0]
    value &= MASK
    value = (value ^ value >> 15) * XXH32_PRIMES[1] & MASK
    value = (value ^ value >> 13) * XXH32_PRIMES[2] & MASK
    return value ^ value >> 16


def rotate_left(value: int, bits: int) -> int:
    value &= MASK
    return (value << bits | value >> (32 - bits)) & MASK


def salvage_zstd(packed: memoryview, limit: int) -> SalvagedData:
    """Decompress frame by frame: Kafka starts a new step with each.

    Kafka ignores an incomplete last frame if one read returned it together with the end of the frame before.
    """
    plain = bytearray()
    at = 0
    for _ in range(PIECES_MAX):
        end = find_zstd_frame_end(packed, at)
        if not end:
            break
        try:
            plain += decompress(Compression.ZSTD, packed[at:end], limit=limit - len(plain))
        except DecompressionError:
            break
        at = end
    rest, message = salvage_zstd_frame(packed[at:], limit - len(plain))
    if INCOMPLETE_FRAME in message or NO_FRAME in message:
        is_complete = (
            INCOMPLETE_FRAME in message and 0 < len(packed) - at <= len(packed) % ZSTD_READ_BYTES
        )
        return SalvagedData(bytes(plain) + rest, is_complete=is_complete and at > 0)
    steps = max(0, len(rest) - 1) // ZSTD_STEP_BYTES
    return SalvagedData(bytes(plain) + rest[: steps * ZSTD_STEP_BYTES])


def find_zstd_frame_end(packed: memoryview, at: int) -> int:
    """Return the position after the frame at `at`, or 0 if the frame is incomplete."""
    if (
        packed[at + 1 : at + 4] == ZSTD_SKIPPABLE_MAGIC
        and packed[at] >> 4 == 5
        and len(packed) - at >= 8
    ):
        end = at + 8 + int.from_bytes(packed[at + 4 : at + 8], "little")
        return end if end <= len(packed) else 0
    if packed[at : at + 4] != ZSTD_MAGIC or len(packed) - at <= 5:
        return 0
    descriptor = packed[at + 4]
    is_single = descriptor >> 5 & 1
    sizes = 1 << (descriptor >> 6) if descriptor >> 6 or is_single else 0
    at += 5 + (not is_single) + (0, 1, 2, 4)[descriptor & 3] + sizes
    while True:
        head = int.from_bytes(packed[at : at + 3], "little")
        at += 3 + (1 if head >> 1 & 3 == ZSTD_RLE_BLOCK else head >> 3)
        if at > len(packed):
            return 0
        if head & 1:
            at += 4 if descriptor & 4 else 0
            return at if at <= len(packed) else 0


def salvage_zstd_frame(packed: memoryview, limit: int) -> tuple[bytes, str]:
    """Return the output of an incomplete or corrupt frame, and cramjam's error message.

    cramjam does not report how much it wrote. So the frame is decompressed into two buffers with different initial
    contents: both are equal up to the end of the output.
    """
    size = min(BUFFER_BYTES, limit)
    while True:
        buffers = [bytearray(filling) * size for filling in (b"\x00", b"\xff")]
        message = ""
        for buffer in buffers:
            try:
                cramjam.zstd.decompress_into(packed, buffer)
            except cramjam.DecompressionError as error:
                message = str(error)
        if BUFFER_FULL_MESSAGE not in message or size >= limit:
            break
        size = min(limit, size * 4)
    written = bisect_left(range(size), True, key=lambda at: buffers[0][at] != buffers[1][at])
    return bytes(memoryview(buffers[0])[:written]), message
