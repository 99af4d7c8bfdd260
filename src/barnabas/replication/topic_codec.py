"""Recompress a produced batch if its topic has a codec of its own (compression.type)."""

from __future__ import annotations

from barnabas.config.topic import TopicConfig
from barnabas.errors import ApiError, RemoteWireError
from barnabas.storage.acceptance import LargeBatch, code_of
from barnabas.wire.compression import Compression
from barnabas.wire.recompress import recompress
from barnabas.wire.records import BatchHeader

PLAIN_BYTES_MAX = 32 << 20
"""A batch that decompresses to more is rejected."""
SMALL_BYTES = 16 << 10
"""Plain batches up to this size are compressed on the event loop."""
CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def require_small(batch: memoryview, header: BatchHeader, config: TopicConfig) -> None:
    """Raise LargeBatch if recompression takes long, or may: a small batch can decompress to megabytes."""
    if header.compression != CODECS[config.compression_type] and (
        header.compression or len(batch) > SMALL_BYTES
    ):
        raise LargeBatch


def recompressed(
    batch: memoryview, header: BatchHeader, config: TopicConfig
) -> tuple[memoryview, BatchHeader]:
    """The batch in the codec of its topic. A batch that already has this codec is returned unchanged."""
    target, level = CODECS[config.compression_type], None
    if header.compression == target:
        return batch, header
    if target is Compression.GZIP:
        level = config.compression_gzip_level
    elif target is Compression.LZ4:
        level = config.compression_lz4_level
    elif target is Compression.ZSTD:
        level = config.compression_zstd_level
    try:
        return recompress(batch, header, target, level=level, limit=PLAIN_BYTES_MAX)
    except RemoteWireError as error:
        code = code_of(error, is_packed=header.compression != 0)
        raise ApiError(code, str(error)) from error
