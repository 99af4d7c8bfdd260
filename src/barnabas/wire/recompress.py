"""A topic may want its own codec: open a batch's records, pack them again, leave all else as it was."""

from __future__ import annotations

from struct import Struct

from barnabas.wire.checksum import crc32c
from barnabas.wire.compression import Compression, compress, decompress
from barnabas.wire.records import (
    COMPRESSION_MASK,
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    read_header,
)

LENGTH = Struct(">i")
CRC = Struct(">I")
ATTRIBUTES = Struct(">h")


def recompress(
    batch: memoryview, header: BatchHeader, target: Compression, *, level: int | None, limit: int
) -> tuple[memoryview, BatchHeader]:
    """The same batch with its records packed by `target`; RemoteWireError if they cannot be opened."""
    plain = decompress(Compression(header.compression), batch[HEADER_SIZE:], limit=limit)
    packed = compress(target, plain, level)
    data = bytearray(batch[:HEADER_SIZE]) + packed
    LENGTH.pack_into(data, 8, len(data) - LOG_OVERHEAD)
    ATTRIBUTES.pack_into(data, CRC_START, header.attributes & ~COMPRESSION_MASK | target)
    view = memoryview(data)
    CRC.pack_into(data, 17, crc32c(view[CRC_START:]))
    return view, read_header(view)
