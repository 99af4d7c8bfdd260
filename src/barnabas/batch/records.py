"""Records of a batch: read them, and build batches from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from barnabas.batch.checksum import crc32c
from barnabas.batch.compression import Compression, compress, decompress
from barnabas.batch.header import (
    COMPRESSION_MASK,
    CONTROL,
    CRC,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    Bytes,
    read_header,
)
from barnabas.errors import RemoteWireError
from barnabas.model import NO_TIMESTAMP
from barnabas.wire.primitives import uvarint

DECOMPRESSED_BYTES_MAX = 128 << 20


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Record(NamedTuple):
    """A record. `offset` is absolute, `timestamp` is in milliseconds; a null `value` is a tombstone."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def records(batch: memoryview) -> Iterator[Record]:
    """Yield the records of the batch that begins at byte 0. The checksum is not verified (see `crc_is_valid`).

    Every length is checked against the available bytes. Raises RemoteWireError for a corrupt batch.
    """
    header = read_header(batch)
    if header.magic != MAGIC or header.size < HEADER_SIZE or header.size > len(batch):
        raise RemoteWireError(
            f"no complete batch: magic={header.magic} size={header.size} available={len(batch)}"
        )
    if header.compression > Compression.ZSTD:
        raise RemoteWireError(f"unknown compression codec {header.compression}")
    if header.count < 0:
        raise RemoteWireError(f"batch has record count {header.count}")
    body = decompress(
        Compression(header.compression),
        batch[HEADER_SIZE : header.size],
        limit=DECOMPRESSED_BYTES_MAX,
    )
    log_append_time = header.max_timestamp if header.is_log_append_time else None
    at = 0
    try:
        for _ in range(header.count):
            record, at = read_record(body, at, header, log_append_time)
            yield record
    except (IndexError, UnicodeDecodeError) as error:
        raise RemoteWireError(
            f"corrupt record in the batch at offset {header.base_offset}: {error}"
        ) from None
    if at != len(body):
        raise RemoteWireError(
            f"{len(body) - at} trailing bytes after the last of {header.count} records"
        )


def read_record(
    body: bytes, at: int, header: BatchHeader, log_append_time: int | None
) -> tuple[Record, int]:
    """Return the record at position `at` and the position after it. `log_append_time` replaces its timestamp."""
    length, at = read_varint(body, at)
    end = at + length
    if length < 0 or end > len(body):
        raise RemoteWireError(f"record has {length} bytes, but {len(body) - at} are left")
    timestamp_delta, at = read_varint(body, at + 1)
    offset_delta, at = read_varint(body, at)
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise RemoteWireError(
            f"offset delta {offset_delta} is not in 0..{header.last_offset_delta}"
        )
    key, at = read_bytes(body, at, end)
    value, at = read_bytes(body, at, end)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if body[at]:
        headers, at = read_record_headers(body, at, end)
    else:
        at += 1
    if at != end:
        raise RemoteWireError(f"record ends at {end} by its length, but its fields end at {at}")
    timestamp = (
        header.base_timestamp + timestamp_delta if log_append_time is None else log_append_time
    )
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers), end


def read_record_headers(
    body: bytes, at: int, end: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = read_varint(body, at)
    # Each header takes at least two bytes, so a larger count is rejected before memory is allocated for it.
    if not 0 <= count <= (end - at) // 2:
        raise RemoteWireError(f"record has {count} headers, but {end - at} bytes are left")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = read_bytes(body, at, end)
        if name is None:
            raise RemoteWireError("record header has a null key")
        value, at = read_bytes(body, at, end)
        headers.append((name.decode(), value))
    return tuple(headers), at


def read_bytes(body: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Return the field at position `at`, or None if it is null, and the position after it. The record ends at `end`."""
    byte = body[at]
    if byte < 0x80:
        length, at = (byte >> 1) ^ -(byte & 1), at + 1
    else:
        length, at = read_varint(body, at)
    if length < 0:
        if length != -1:
            raise RemoteWireError(f"field has length {length}")
        return None, at
    stop = at + length
    if stop > end:
        raise RemoteWireError(f"field has {length} bytes, but {end - at} are left")
    return body[at:stop], stop


def read_varint(body: Bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint of up to 64 bits and the position after it. Raises IndexError at the end of the data."""
    byte = body[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    value = byte & 0x7F
    shift = 7
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            break
    raise RemoteWireError("varint is longer than 64 bits")


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    last_offset: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Return one batch. Offsets must ascend from `base_offset` on; for a producer this is 0.

    `last_offset` is the original last offset of a compacted batch, which may be empty. `delete_horizon_ms` is the time
    from which its tombstones may be deleted; it replaces the base timestamp.
    """
    if last_offset is None:
        last_offset = records[-1].offset
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    body = bytearray()
    for record in records:
        write_record(body, record, base_offset, base_timestamp)
    # An empty batch is not compressed: some readers reject an empty frame.
    codec = compression if records else Compression.NONE
    return seal_batch(
        body,
        count=len(records),
        base_offset=base_offset,
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        attributes=codec
        | (LOG_APPEND_TIME if timestamp_type else 0)
        | (TRANSACTIONAL if is_transactional else 0)
        | (CONTROL if is_control else 0)
        | (DELETE_HORIZON if delete_horizon_ms is not None else 0),
        compression_level=compression_level,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        partition_leader_epoch=partition_leader_epoch,
    )


def seal_batch(
    body: Bytes,
    *,
    count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int,
    base_offset: int = 0,
    compression_level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
) -> bytes:
    """Return a batch from its serialized, uncompressed records: compress `body` and add the header."""
    codec = Compression(attributes & COMPRESSION_MASK)
    compressed: Bytes = compress(codec, body, compression_level) if codec else body
    batch = bytearray(
        HEADER.pack(
            base_offset,
            HEADER_SIZE - LOG_OVERHEAD + len(compressed),
            partition_leader_epoch,
            MAGIC,
            0,
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )
    )
    batch += compressed
    CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)


def write_record(body: bytearray, record: Record, base_offset: int, base_timestamp: int) -> None:
    offset, timestamp, key, value, headers = record
    fields = [
        b"\0",
        varint(timestamp - base_timestamp),
        varint(offset - base_offset),
        b"\1" if key is None else varint(len(key)) + key,
        b"\1" if value is None else varint(len(value)) + value,
        varint(len(headers)),
    ]
    for name, content in headers:
        raw = name.encode()
        fields.append(varint(len(raw)) + raw)
        fields.append(b"\1" if content is None else varint(len(content)) + content)
    joined = b"".join(fields)
    body += varint(len(joined))
    body += joined


def varint(value: int) -> bytes:
    """Encode a zigzag varint: small numbers of either sign take few bytes."""
    zigzag = (value << 1) ^ (value >> 63)
    return SMALL_VARINTS[zigzag] if zigzag < 1024 else uvarint(zigzag)


SMALL_VARINTS = tuple(uvarint(number) for number in range(1024))
