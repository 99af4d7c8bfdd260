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
from collections.abc import Callable
from enum import IntEnum

import cramjam

from barnabas.errors import RemoteWireError

Bytes = bytes | bytearray | memoryview


class Damaged(RemoteWireError):
    """Compressed data that cannot be opened, or must not be."""


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

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEAD = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 << 10
LENGTH = struct.Struct(">i")


FIRST_BYTES = {
    Compression.GZIP: (b"\x1f\x8b",),
    Compression.LZ4: (b"\x04\x22\x4d\x18",),
    Compression.ZSTD: (
        b"\x28\xb5\x2f\xfd",
        *(bytes((n,)) + b"\x2a\x4d\x18" for n in range(80, 96)),
    ),
}
"""Of every frame; zstd also has frames that are to be skipped."""
SNAPPY_RATIO_MAX = 64


def may_be(codec: Compression, data: memoryview) -> bool:
    """Whether it begins as what this codec has packed does. Only a bare snappy block, which begins as anything may, is
    unpacked to see."""
    if codec is Compression.NONE:
        return True
    if codec is not Compression.SNAPPY:
        return bytes(data[:4]).startswith(FIRST_BYTES[codec])
    if bytes(data[:8]) == XERIAL_MAGIC:
        return True
    try:
        return bool(decompress_raw_snappy(data, ALWAYS_ALLOWED_BYTES))
    except (cramjam.DecompressionError, Damaged):
        return False


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


def decompress(codec: Compression, data: Bytes, *, limit: int) -> bytes:
    """The plain bytes, at most `limit` of them. Damaged for what is no such data, and for bombs."""
    limit = min(limit, max(ALWAYS_ALLOWED_BYTES, len(data) * RATIO_MAX))
    try:
        match codec:
            case Compression.NONE:
                return within(limit, bytes(data))
            case Compression.GZIP:
                return decompress_gzip(data, limit)
            case Compression.SNAPPY:
                return decompress_snappy(data, limit)
            case Compression.LZ4:
                return decompress_growing(cramjam.lz4.decompress_into, data, limit)
            case Compression.ZSTD:
                return decompress_growing(cramjam.zstd.decompress_into, data, limit)
    except (cramjam.DecompressionError, zlib.error, struct.error) as error:
        raise Damaged(f"damaged {codec.name} data: {error}") from None


def too_large(limit: int) -> Damaged:
    return Damaged(f"decompresses to more than the {limit} bytes allowed for it")


def within(limit: int, data: bytes) -> bytes:
    if len(data) > limit:
        raise too_large(limit)
    return data


def decompress_gzip(data: Bytes, limit: int) -> bytes:
    plain = bytearray()
    rest: Bytes = data
    while rest:
        member = zlib.decompressobj(wbits=31)
        plain += member.decompress(rest, limit - len(plain) + 1)
        if len(plain) > limit:
            raise too_large(limit)
        if not member.eof:
            raise Damaged("damaged GZIP data: it ends too early")
        rest = member.unused_data
    return bytes(plain)


def decompress_growing(into: Callable[[Bytes, bytearray], int], data: Bytes, limit: int) -> bytes:
    """Try with a small buffer, then with ever larger ones. cramjam streams into what it is given and stops when that
    is full, so no more than `limit` is ever allocated, whatever the frame's head claims."""
    size = min(limit, max(64 << 10, len(data) * 4))
    while True:
        plain = bytearray(size)
        try:
            written = into(data, plain)
        except cramjam.DecompressionError as error:
            if "write whole buffer" not in str(error):
                raise
            if size >= limit:
                raise too_large(limit) from None
            size = min(limit, size * 4)
        else:
            del plain[written:]
            return bytes(plain)


def compress_xerial(data: Bytes) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEAD]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts += (LENGTH.pack(len(block)), block)
    return b"".join(parts)


def decompress_snappy(data: Bytes, limit: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != XERIAL_MAGIC:
        return decompress_raw_snappy(view, limit)
    plain = bytearray()
    at = len(XERIAL_HEAD)
    while at < len(view):
        (length,) = LENGTH.unpack_from(view, at)
        at += LENGTH.size
        if not 0 <= length <= len(view) - at:
            raise Damaged(f"damaged SNAPPY data: a block of {length} bytes")
        plain += decompress_raw_snappy(view[at : at + length], limit - len(plain))
        at += length
    return bytes(plain)


def decompress_raw_snappy(block: memoryview, limit: int) -> bytes:
    # A snappy block cannot expand more than 64-fold, so a larger claim is a lie and not worth the memory.
    claimed = cramjam.snappy.decompress_raw_len(block)
    if claimed > limit:
        raise too_large(limit)
    if claimed > SNAPPY_RATIO_MAX * len(block):
        raise Damaged(f"damaged SNAPPY data: {len(block)} bytes claim to be {claimed}")
    return bytes(cramjam.snappy.decompress_raw(block))
