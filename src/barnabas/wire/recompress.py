"""Recompression of a batch for a topic with its own `compression.type`."""

from __future__ import annotations

from contextlib import suppress
from struct import Struct

from barnabas.wire.checksum import crc32c
from barnabas.wire.compression import Compression, LimitExceeded, compress
from barnabas.wire.contents import Outline, require_possible, walk_records
from barnabas.wire.damaged import unpack
from barnabas.wire.records import (
    COMPRESSION_MASK,
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    read_header,
    varint,
)
from barnabas.wire.skim import skim

LENGTH = Struct(">i")
CRC = Struct(">I")
ATTRIBUTES = Struct(">h")


def recompress(
    batch: memoryview, header: BatchHeader, target: Compression, *, level: int | None, limit: int
) -> tuple[memoryview, BatchHeader]:
    """Return the batch with its records compressed by `target`, and the new header.

    `limit` is the maximum uncompressed size in bytes. Raises RemoteWireError for corrupt data, or if the records do not
    match the header.
    """
    codec = Compression(header.compression)
    plain = unpack(codec, batch[HEADER_SIZE:], header.count, limit=limit, ignore_lengths=False)
    with suppress(LimitExceeded):
        require_possible(header.count, len(plain))
        if skim(plain, header.count) != (header.count, len(plain)):
            plain = renumber_records(plain, list(walk_records(plain, header.count)))
    compressed = compress(target, plain, level)
    data = bytearray(batch[:HEADER_SIZE]) + compressed
    LENGTH.pack_into(data, 8, len(data) - LOG_OVERHEAD)
    ATTRIBUTES.pack_into(data, CRC_START, header.attributes & ~COMPRESSION_MASK | target)
    view = memoryview(data)
    CRC.pack_into(data, 17, crc32c(view[CRC_START:]))
    return view, read_header(view)


def renumber_records(plain: bytes, records: list[Outline]) -> bytes:
    """Return the records with offset deltas 0, 1, 2, …. Kafka corrects wrong deltas here, and nowhere else."""
    if all(record.offset_delta == number for number, record in enumerate(records)):
        return plain
    body = bytearray()
    for number, record in enumerate(records):
        times = varint(record.timestamp_delta) + varint(number)
        fields = b"\0" + times + plain[record.fields_at : record.end]
        body += varint(len(fields)) + fields
    return bytes(body)
