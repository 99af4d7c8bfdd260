"""The compression codecs of record batches, in the formats that Kafka's clients use.

    gzip     the gzip format, possibly several members
    snappy   "xerial" format: a 16-byte header, then (length, raw snappy block)*. A single raw block without header is
             accepted too: librdkafka sends this
    lz4      the LZ4 frame format with independent blocks: the Java client cannot read linked blocks
    zstd     zstd frames, with or without the content size in their header

Compressed data is not trusted: a few bytes can expand to gigabytes. A size that the sender claims is checked before
memory is allocated for it. The output is limited to `limit` bytes. Above 16 MiB it is also limited to RATIO_MAX times
the input.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum, IntFlag
from mmap import mmap

import cramjam

from barnabas.errors import RemoteWireError

Bytes = bytes | bytearray | memoryview


class DecompressionError(RemoteWireError):
    """Compressed data that is corrupt, or exceeds a limit."""


class LimitExceeded(DecompressionError):
    """Data exceeds a limit of the caller. The data itself may be valid."""


class Compression(IntEnum):
    """Codec in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# Repetitive logs compress by a factor of 1000. A higher ratio is a decompression bomb, unless the output is small.
RATIO_MAX = 1_000
ALWAYS_ALLOWED_BYTES = 16 << 20

PRODUCED_BYTES_MAX = 64 << 20
"""A produced batch that decompresses to more bytes is rejected."""
DECOMPRESSED_BYTES_MAX = 128 << 20
"""A stored batch that decompresses to more bytes is not read. Kafka may have stored it."""
BUFFER_BYTES = 1 << 20
BUFFER_FULL_MESSAGE = "write whole buffer"
"""Part of cramjam's error message when the output buffer is full."""
COPY_STEP_BYTES = 1 << 20
UNLIMITED = 1 << 62

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEAD = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 << 10
LENGTH = struct.Struct(">i")
SNAPPY_RATIO_MAX = 64
GZIP_WINDOW_BYTES, GZIP_STEP_BYTES = 4 << 10, 1 << 20
GZIP_MAGIC = b"\x1f\x8b\x08"
GZIP_HEADER_BYTES = 10
GZIP_SHORT, GZIP_TRAILER = struct.Struct("<H"), struct.Struct("<II")
GZIP_MEMBER_BYTES_MIN = 19
"""Size of the shortest member. Java ignores shorter trailing data."""
LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_FLAGS_AT = len(LZ4_MAGIC)
LZ4_SIZE = struct.Struct("<I")
LZ4_UNCOMPRESSED = 0x8000_0000
"""Flag in the size of a block: the block is not compressed."""


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


def decompress(
    codec: Compression, data: Bytes, *, limit: int, blocks_max: int = UNLIMITED
) -> bytes:
    """Return the uncompressed bytes.

    Raises LimitExceeded above `limit` bytes, or above `blocks_max` gzip members, snappy blocks or LZ4 blocks: many
    small blocks take long. `blocks_max` does not apply to zstd. Raises DecompressionError for corrupt data.
    """
    limit = min(limit, max(ALWAYS_ALLOWED_BYTES, len(data) * RATIO_MAX))
    try:
        match codec:
            case Compression.NONE:
                return require_size(limit, bytes(data))
            case Compression.GZIP:
                return decompress_gzip(memoryview(data), limit, blocks_max)
            case Compression.SNAPPY:
                return decompress_snappy(memoryview(data), limit, blocks_max)
            case Compression.LZ4:
                frame = first_lz4_frame(memoryview(data), blocks_max)
                return decompress_into_buffer(cramjam.lz4.decompress_into, frame, limit)
            case Compression.ZSTD:  # empty data is valid: it has no frames
                return (
                    decompress_into_buffer(cramjam.zstd.decompress_into, data, limit)
                    if data
                    else b""
                )
    except (cramjam.DecompressionError, zlib.error, struct.error) as error:
        raise DecompressionError(f"corrupt {codec.name} data: {error}") from None


def size_limit_error(limit: int) -> LimitExceeded:
    return LimitExceeded(f"decompresses to more than the limit of {limit} bytes")


def block_limit_error() -> LimitExceeded:
    return LimitExceeded("compressed in more blocks than allowed")


def require_size(limit: int, data: bytes) -> bytes:
    if len(data) > limit:
        raise size_limit_error(limit)
    return data


def decompress_gzip(data: memoryview, limit: int, blocks_max: int) -> bytes:
    size, steps = 0, []
    for step in iter_gzip_steps(bytes(data), blocks_max):
        size += len(step)
        if size > limit:
            raise size_limit_error(limit)
        steps.append(step)
    return b"".join(steps)  # releases the interpreter lock if it copies more than 1 MB


def iter_gzip_steps(data: bytes, blocks_max: int) -> Iterator[bytes]:
    """Yield the contents of all members in steps of up to GZIP_STEP_BYTES.

    Trailing data after the last member is ignored, as in the Java client.
    """
    at = skip_gzip_header(data, 0)
    for _ in range(blocks_max):
        member = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
        checksum = size = 0
        read = b""
        # Bytes read beyond the end of a member are copied, so reading starts with a small window.
        window = GZIP_WINDOW_BYTES
        while True:
            step = member.decompress(read, GZIP_STEP_BYTES)
            read = member.unconsumed_tail
            if step:
                checksum, size = zlib.crc32(step, checksum), size + len(step)
                yield step
            if member.eof:
                break
            if not step and not read:
                read = data[at : at + window]
                at += len(read)
                window *= 16
                if not read:
                    raise DecompressionError("corrupt GZIP data: it ends too early")
        at -= len(member.unused_data)
        if GZIP_TRAILER.unpack_from(data, at) != (checksum, size & 0xFFFF_FFFF):
            raise DecompressionError("corrupt GZIP data: wrong checksum or size")
        at += GZIP_TRAILER.size
        if len(data) - at < GZIP_MEMBER_BYTES_MIN:
            return
        try:
            at = skip_gzip_header(data, at)
        except DecompressionError:
            return
    raise block_limit_error()


def skip_gzip_header(data: bytes, at: int) -> int:
    """Return the position after the header of a member."""
    header = data[at : at + GZIP_HEADER_BYTES]
    if len(header) < GZIP_HEADER_BYTES or not header.startswith(GZIP_MAGIC):
        raise DecompressionError("corrupt GZIP data: no gzip header")
    flags = header[3]
    begin, at = at, at + GZIP_HEADER_BYTES
    try:
        if flags & GzipFlag.EXTRA:
            at += 2 + GZIP_SHORT.unpack_from(data, at)[0]
        for text in (GzipFlag.NAME, GzipFlag.COMMENT):
            if flags & text:
                at = data.index(b"\0", at) + 1
        if flags & GzipFlag.CHECKSUM:
            if GZIP_SHORT.unpack_from(data, at)[0] != zlib.crc32(data[begin:at]) & 0xFFFF:
                raise DecompressionError("corrupt GZIP data: wrong checksum of the header")
            at += GZIP_SHORT.size
    except (struct.error, ValueError):
        raise DecompressionError("corrupt GZIP data: it ends within the header") from None
    return at


def require_readable(codec: Compression, data: memoryview) -> None:
    """Raise DecompressionError for LZ4 blocks that depend on earlier ones: the Java client cannot read them."""
    if codec is not Compression.LZ4 or len(data) <= LZ4_FLAGS_AT:
        return
    if not data[LZ4_FLAGS_AT] & Lz4Flag.INDEPENDENT:
        raise DecompressionError(
            "linked LZ4 blocks are not supported: the Java client cannot read them"
        )


def first_lz4_frame(data: memoryview, blocks_max: int) -> memoryview:
    """Return the first frame. Trailing data after it is ignored, as in the Java client."""
    if len(data) <= LZ4_FLAGS_AT or bytes(data[:LZ4_FLAGS_AT]) != LZ4_MAGIC:
        raise DecompressionError("corrupt LZ4 data: no LZ4 frame header")
    flags = data[LZ4_FLAGS_AT]
    at = 15 if flags & Lz4Flag.CONTENT_SIZE else 7
    checksum_bytes = 4 if flags & Lz4Flag.BLOCK_CHECKSUM else 0
    blocks = 0
    while size := LZ4_SIZE.unpack_from(data, at)[0] & ~LZ4_UNCOMPRESSED:
        at += LZ4_SIZE.size + size + checksum_bytes
        blocks += 1
        if blocks > blocks_max:
            raise block_limit_error()
    return data[: at + LZ4_SIZE.size + (4 if flags & Lz4Flag.CONTENT_CHECKSUM else 0)]


buffers: list[bytearray] = []
"""Free output buffers for reuse: allocating a buffer takes as long as decompressing."""


def decompress_into_buffer(
    into: Callable[[Bytes, bytearray | mmap], int], data: Bytes, limit: int
) -> bytes:
    """Decompress into a buffer, and retry with a larger one while it is too small.

    cramjam stops when the buffer is full, so the size that the frame claims does not matter.
    """
    try:
        buffer = buffers.pop()
    except IndexError:
        buffer = bytearray(BUFFER_BYTES)
    plain: bytearray | mmap = buffer
    try:
        while True:
            try:
                written = into(data, plain)
            except cramjam.DecompressionError as error:
                if BUFFER_FULL_MESSAGE not in str(error):
                    raise
                if len(plain) >= limit:
                    raise size_limit_error(limit) from None
                plain = new_buffer(min(limit, len(plain) * 4))
            else:
                return require_size(limit, copy_in_steps(memoryview(plain)[:written]))
    finally:
        buffers.append(buffer)


def new_buffer(size: int) -> bytearray | mmap:
    """Return a buffer of zeros. Writing the zeros of a large one would take long, so the kernel supplies its pages."""
    return bytearray(size) if size <= BUFFER_BYTES else mmap(-1, size)


def copy_in_steps(data: memoryview) -> bytes:
    """Return the data as bytes. Other threads can run after each step, and while `join` copies more than 1 MB."""
    if len(data) <= COPY_STEP_BYTES:
        return bytes(data)
    starts = range(0, len(data), COPY_STEP_BYTES)
    return b"".join([bytes(data[start : start + COPY_STEP_BYTES]) for start in starts])


def compress_xerial(data: Bytes) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEAD]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts += (LENGTH.pack(len(block)), block)
    return b"".join(parts)


def decompress_snappy(view: memoryview, limit: int, blocks_max: int) -> bytes:
    if len(view) < len(XERIAL_HEAD) or bytes(view[:8]) != XERIAL_MAGIC:
        return decompress_raw_snappy(view, limit)
    total = 0
    blocks = []
    for block in iter_xerial_blocks(view):
        size = claimed_snappy_size(block)
        blocks.append((block, total, total + size))
        total += size
        if total > limit:
            raise size_limit_error(limit)
        if len(blocks) > blocks_max:
            raise block_limit_error()
    plain = new_buffer(total)
    for block, start, end in blocks:
        cramjam.snappy.decompress_raw_into(block, memoryview(plain)[start:end])
    return copy_in_steps(memoryview(plain))


def iter_xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    """Yield each compressed block.

    There may be another header between two blocks. An incomplete length at the end is ignored.
    """
    at = len(XERIAL_HEAD)
    while at + LENGTH.size <= len(view):
        if view[at : at + LENGTH.size] == XERIAL_MAGIC[: LENGTH.size]:
            at += len(XERIAL_HEAD)
            if at > len(view):
                raise DecompressionError("corrupt SNAPPY data: it ends within a header")
            continue
        (length,) = LENGTH.unpack_from(view, at)
        at += LENGTH.size
        if not 0 <= length <= len(view) - at:
            raise DecompressionError(
                f"corrupt SNAPPY data: block of {length} bytes, but {len(view) - at} are left"
            )
        yield view[at : at + length]
        at += length


def decompress_raw_snappy(block: memoryview, limit: int) -> bytes:
    if claimed_snappy_size(block) > limit:
        raise size_limit_error(limit)
    return bytes(cramjam.snappy.decompress_raw(block))


def claimed_snappy_size(block: memoryview) -> int:
    """Return the uncompressed size that a block claims.

    Snappy expands at most 64-fold, so a larger claim is rejected before memory is allocated for it.
    """
    claimed: int = cramjam.snappy.decompress_raw_len(block)
    if claimed > SNAPPY_RATIO_MAX * len(block):
        raise DecompressionError(
            f"corrupt SNAPPY data: block of {len(block)} bytes claims {claimed} uncompressed bytes"
        )
    return claimed
