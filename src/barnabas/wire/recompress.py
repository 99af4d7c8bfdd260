"""A topic may want its own codec: open a batch's records, pack them again, leave all else as it was."""

from __future__ import annotations

from contextlib import suppress
from struct import Struct

from barnabas.wire.checksum import crc32c
from barnabas.wire.compression import Compression, Oversized, compress
from barnabas.wire.contents import Outline, require_possible, walk
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
    """The same batch with its records packed by `target`; RemoteWireError if they cannot be opened, or are not what the
    header promises."""
    codec = Compression(header.compression)
    plain = unpack(codec, batch[HEADER_SIZE:], header.count, limit=limit, by_fields=False)
    with suppress(Oversized):
        require_possible(header.count, len(plain))
        if skim(plain, header.count) != (header.count, len(plain)):
            plain = in_order(plain, list(walk(plain, header.count)))
    packed = compress(target, plain, level)
    data = bytearray(batch[:HEADER_SIZE]) + packed
    LENGTH.pack_into(data, 8, len(data) - LOG_OVERHEAD)
    ATTRIBUTES.pack_into(data, CRC_START, header.attributes & ~COMPRESSION_MASK | target)
    view = memoryview(data)
    CRC.pack_into(data, 17, crc32c(view[CRC_START:]))
    return view, read_header(view)


def in_order(plain: bytes, records: list[Outline]) -> bytes:
    """The records numbered as they stand, if they are not: as Kafka does here, and nowhere else."""
    if all(record.offset_delta == number for number, record in enumerate(records)):
        return plain
    body = bytearray()
    for number, record in enumerate(records):
        times = varint(record.timestamp_delta) + varint(number)
        fields = b"\0" + times + plain[record.fields_at : record.end]
        body += varint(len(fields)) + fields
    return bytes(body)
