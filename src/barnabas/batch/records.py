"""Records of a batch: read them, and build batches from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from barnabas.batch.checksum import crc32c
from barnabas.batch.compression import DECOMPRESSED_BYTES_MAX, Compression, compress, decompress
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
)
from barnabas.batch.reader import RecordReader
from barnabas.errors import RemoteWireError
from barnabas.model import NO_TIMESTAMP
from barnabas.wire.primitives import uvarint


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
    header = BatchHeader(batch)
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
    reader = RecordReader(body)
    last = header.last_offset_delta
    for _ in range(header.count):
        reader.read_next()
        delta = reader.offset_delta
        if not 0 <= delta <= last:
            raise RemoteWireError(f"offset delta {delta} is not in 0..{last}")
        timestamp = header.base_timestamp + int(reader.timestamp_delta)
        if header.is_log_append_time:
            timestamp = header.max_timestamp
        yield Record(
            header.base_offset + delta, timestamp, reader.key(), reader.value(), reader.headers()
        )
    reader.require_end(header.count)


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
