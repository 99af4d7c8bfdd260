"""Recompress a produced batch if its topic has a codec of its own (compression.type)."""

from __future__ import annotations

from barnabas.config.topic import TopicConfig
from barnabas.errors import ApiError, RemoteWireError
from barnabas.storage.acceptance import LargeBatch, code_of
from barnabas.wire.compression import Compression
from barnabas.wire.recompress import recompress
from barnabas.wire.records import BatchHeader

UNCOMPRESSED_BYTES_MAX = 32 << 20
"""A batch that decompresses to more is rejected."""
SMALL_BYTES = 16 << 10
"""Uncompressed batches up to this size are compressed on the event loop."""
CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def require_fast_recompression(batch: memoryview, header: BatchHeader, config: TopicConfig) -> None:
    """Raise LargeBatch if recompression may take long. Even a small compressed batch can decompress to megabytes."""
    if header.compression != CODECS[config.compression_type] and (
        header.compression or len(batch) > SMALL_BYTES
    ):
        raise LargeBatch


def recompress_for_topic(
    batch: memoryview, header: BatchHeader, config: TopicConfig
) -> tuple[memoryview, BatchHeader]:
    """Return the batch in the codec of its topic. A batch that already has this codec is returned unchanged.

    Raises ApiError if the batch cannot be decompressed.
    """
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
        return recompress(batch, header, target, level=level, limit=UNCOMPRESSED_BYTES_MAX)
    except RemoteWireError as error:
        code = code_of(error, is_packed=header.compression != 0)
        raise ApiError(code, str(error)) from error
