"""Recompression of a produced batch for a topic whose compression.type is a codec, not `producer`."""

from __future__ import annotations

from barnabas.batch.checksum import crc32c
from barnabas.batch.compression import (
    PRODUCED_BYTES_MAX,
    Compression,
    LimitExceeded,
    compress,
    decompress,
)
from barnabas.batch.header import (
    ATTRIBUTES,
    COMPRESSION_MASK,
    CRC,
    CRC_START,
    HEADER_SIZE,
    LENGTH,
    LOG_OVERHEAD,
    BatchHeader,
)
from barnabas.batch.reader import RecordReader
from barnabas.batch.record_checks import check_order
from barnabas.batch.records import varint
from barnabas.config.topic import TopicConfig
from barnabas.errors import ApiError, ErrorCode, RemoteWireError

SMALL_BYTES = 16 << 10
"""Uncompressed batches up to this size are compressed on the event loop."""
CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def is_fast(batch: memoryview, header: BatchHeader, config: TopicConfig) -> bool:
    """Return whether recompression may run on the event loop: nothing to do, or a small uncompressed batch.

    Decompression may not: a small batch may expand to megabytes.
    """
    return header.compression == CODECS[config.compression_type] or (
        not header.compression and len(batch) <= SMALL_BYTES
    )


def recompress_for_topic(
    batch: memoryview, header: BatchHeader, config: TopicConfig
) -> tuple[memoryview, BatchHeader]:
    """Return the batch in the codec of its topic. A batch that already has this codec is returned unchanged.

    Raises ApiError if the batch is corrupt, or decompresses to more than PRODUCED_BYTES_MAX bytes.
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
        return recompress(batch, header, target, level)
    except LimitExceeded as exceeded:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, str(exceeded)) from exceeded
    except RemoteWireError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error


def recompress(
    batch: memoryview, header: BatchHeader, target: Compression, level: int | None
) -> tuple[memoryview, BatchHeader]:
    """Return the batch with its records compressed by `target`, and the new header.

    Raises RemoteWireError for corrupt data, or if the records do not match the header.
    """
    codec = Compression(header.compression)
    plain = decompress(codec, batch[HEADER_SIZE:], limit=PRODUCED_BYTES_MAX)
    if not check_order(plain, header.count, ignores_lengths=False):
        plain = renumber_records(plain, header.count)
    data = bytearray(batch[:HEADER_SIZE]) + compress(target, plain, level)
    LENGTH.pack_into(data, 8, len(data) - LOG_OVERHEAD)
    ATTRIBUTES.pack_into(data, CRC_START, header.attributes & ~COMPRESSION_MASK | target)
    view = memoryview(data)
    CRC.pack_into(data, 17, crc32c(view[CRC_START:]))
    return view, BatchHeader(view)


def renumber_records(plain: bytes, count: int) -> bytes:
    """Return the records with offset deltas 0, 1, 2, …. Kafka corrects wrong deltas only when it recompresses."""
    reader = RecordReader(plain)
    body = bytearray()
    for number in range(count):
        reader.read_next()
        deltas = varint(reader.timestamp_delta) + varint(number)
        fields = b"\0" + deltas + plain[reader.fields_at : reader.end]
        body += varint(len(fields)) + fields
    return bytes(body)
