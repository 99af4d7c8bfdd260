"""Record batches, magic 2: the unit that is produced, stored, replicated and fetched.

    position  size  field
           0     8  base offset                 the broker writes it          ┐ outside the crc
           8     4  length                      of all bytes after this field │
          12     4  partition leader epoch      the broker writes it          │
          16     1  magic                       2                             │
          17     4  crc32c                      of bytes 21..end              ┘
          21     2  attributes                  bits 0-2 codec, 3 log append time, 4 transactional, 5 control,
                                                6 delete horizon
          23     4  last offset delta           compaction keeps it, so it may exceed count - 1 on disk
          27     8  base timestamp              the delete horizon, if attribute bit 6 is set
          35     8  max timestamp
          43     8  producer id                 -1: not idempotent
          51     2  producer epoch              -1: not idempotent
          53     4  base sequence               -1: not idempotent
          57     4  count
          61        records, compressed as one block

The broker reads these 61 bytes of every produced batch, so the functions before the line "record by record" are
optimized for speed. `skim.py` validates the records of a batch. The functions after the line read and build batches
record by record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import NO_TIMESTAMP
from barnabas.wire.checksum import crc32c
from barnabas.wire.compression import Compression, compress, decompress
from barnabas.wire.primitives import uvarint

Bytes = bytes | bytearray | memoryview

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
LOG_OVERHEAD = 12
CRC_START = 21
MAGIC = 2
MAGIC_AT = 16

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

CRC = struct.Struct(">I")
LENGTH = struct.Struct(">i")
ATTRIBUTES = struct.Struct(">h")
TIMESTAMP = struct.Struct(">q")

DECOMPRESSED_BYTES_MAX = 128 << 20


class BatchHeader(NamedTuple):
    """The fixed part of a batch. `length` counts bytes from position 12, `size` from position 0."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used

    @property
    def size(self) -> int:
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON != 0


def read_header(data: Bytes, at: int = 0) -> BatchHeader:
    """Read a header without validating it. Raises RemoteWireError if fewer than HEADER_SIZE bytes are left."""
    try:
        return tuple.__new__(BatchHeader, HEADER.unpack_from(data, at))
    except struct.error:
        raise RemoteWireError(
            f"batch header at {at} needs {HEADER_SIZE} bytes, got {max(len(data) - at, 0)}"
        ) from None


def crc_is_valid(data: memoryview, at: int, header: BatchHeader) -> bool:
    """Return whether `data` holds the whole batch and its checksum matches."""
    end = at + header.length + LOG_OVERHEAD
    if header.length < HEADER_SIZE - LOG_OVERHEAD or end > len(data):
        return False
    checksum: int = crc32c(data[at + CRC_START : end])
    return checksum == header.crc


def batch_headers(data: Bytes, at: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and the header of each whole batch.

    A partial batch at the end is ignored: a fetch response may be cut there. Raises RemoteWireError for a length or a
    magic that no batch can have.
    """
    while len(data) - at >= HEADER_SIZE:
        header = read_header(data, at)
        if header.length < HEADER_SIZE - LOG_OVERHEAD or header.magic != MAGIC:
            raise RemoteWireError(f"no batch at {at}: length={header.length} magic={header.magic}")
        if at + header.length + LOG_OVERHEAD > len(data):
            return
        yield at, header
        at += header.length + LOG_OVERHEAD


class BadRequest(ApiError):
    """A batch rejected before its log is looked up. The response then has no log start offset."""


def drop_partial_batch(data: memoryview) -> memoryview:
    """Return the first batch alone if only a partial batch follows it, otherwise `data` unchanged.

    Kafka ignores a partial batch at the end of the records of a partition.
    """
    if len(data) >= HEADER_SIZE and data[MAGIC_AT] == MAGIC:
        if LENGTH.unpack_from(data, 8)[0] + LOG_OVERHEAD == len(data):
            return data
        header = read_header(data)
        trailing = len(data) - header.size
        if header.length >= HEADER_SIZE - LOG_OVERHEAD and trailing > 0:
            length = LENGTH.unpack_from(data, header.size + 8)[0] if trailing > LOG_OVERHEAD else 0
            if trailing <= MAGIC_AT or length + LOG_OVERHEAD > trailing:
                return data[: header.size]
    return data


def has_only_partial_batch(data: memoryview) -> bool:
    """Return whether `data` holds neither a whole batch nor a whole message of an older format.

    Both begin with an offset and a length.
    """
    return len(data) < LOG_OVERHEAD or LENGTH.unpack_from(data, 8)[0] + LOG_OVERHEAD > len(data)


def validate_produced(data: memoryview, produce_version: int) -> BatchHeader:
    """Validate the one batch that a producer sent for one partition, and return its header.

    Checks the header and the checksum only; the log validates the records. Raises ApiError with the error code that
    Kafka returns.
    """
    if len(data) < HEADER_SIZE or data[MAGIC_AT] != MAGIC:
        raise format_error(data, produce_version)
    header = tuple.__new__(BatchHeader, HEADER.unpack_from(data))
    length, attributes, count = header[1], header[5], header[12]
    if length + LOG_OVERHEAD != len(data):
        raise length_error(header, len(data))
    if header[0] != 0:
        raise invalid_record(f"base offset is {header[0]}, must be 0")
    if crc32c(data[CRC_START:]) != header[4]:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "checksum of the batch does not match")
    if attributes != 0:
        check_attributes(attributes, produce_version)
    if count <= 0 or header[6] + 1 != count:
        raise invalid_record(f"record count is {count}, but last offset delta is {header[6]}")
    if header[9] >= 0 and header[11] < 0:
        raise invalid_record(f"base sequence is {header[11]}, but producer id is {header[9]}")
    return header


def check_attributes(attributes: int, produce_version: int) -> None:
    """Reject unknown codecs, zstd in old versions, and control batches."""
    codec = attributes & COMPRESSION_MASK
    if codec > Compression.ZSTD:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"unknown compression codec {codec}")
    if codec == Compression.ZSTD and produce_version < 7:
        why = f"zstd needs Produce version 7 or later, got version {produce_version}"
        raise BadRequest(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, why)
    if attributes & CONTROL:
        raise invalid_record("clients must not write control batches")


def format_error(data: memoryview, produce_version: int) -> ApiError:
    """Return the error for data that does not begin with a whole header of magic 2."""
    if len(data) <= MAGIC_AT:
        return BadRequest(ErrorCode.INVALID_RECORD, "request has no record batch")
    magic = data[MAGIC_AT]
    if magic > MAGIC:
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"unknown magic {magic}")
    if magic == MAGIC:
        return BadRequest(ErrorCode.INVALID_RECORD, "request has no whole record batch")
    if produce_version >= 3:
        why = f"Produce version {produce_version} requires magic 2, got magic {magic}"
        return BadRequest(ErrorCode.INVALID_RECORD, why)
    why = f"magic {magic} is not supported; use a client that sends Produce version 3 or later"
    return ApiError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, why)


def length_error(header: BatchHeader, available: int) -> ApiError:
    """Return the error for a batch whose length is not that of the data."""
    if header.length < HEADER_SIZE - LOG_OVERHEAD:
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"invalid batch length {header.length}")
    if header.size > available:
        why = f"batch has {header.size} bytes, but the request has only {available}"
        return BadRequest(ErrorCode.INVALID_RECORD, why)
    return BadRequest(ErrorCode.INVALID_RECORD, "more than one record batch for a partition")


def invalid_record(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, why)


stamp = struct.Struct(">qii").pack_into
"""`stamp(data, at, base_offset, length, leader_epoch)`: write the fields that the leader assigns.

The length lies between the two and is written unchanged. The checksum covers none of the three, so it stays valid.
"""


def stamp_log_append_time(data: memoryview, at: int, now_ms: int) -> None:
    """Set the timestamp of every record to `now_ms`: set the attribute and the max timestamp, update the checksum."""
    header = read_header(data, at)
    ATTRIBUTES.pack_into(data, at + CRC_START, header.attributes | LOG_APPEND_TIME)
    TIMESTAMP.pack_into(data, at + 35, now_ms)
    CRC.pack_into(data, at + 17, crc32c(data[at + CRC_START : at + header.size]))


def stamp_create_time(data: memoryview, header: BatchHeader) -> BatchHeader:
    """Clear the log append time attribute, update the checksum, and return the new header."""
    ATTRIBUTES.pack_into(data, CRC_START, header.attributes & ~LOG_APPEND_TIME)
    CRC.pack_into(data, 17, crc32c(data[CRC_START : header.size]))
    return read_header(data)


# ---- record by record -----------------------------------------------------------------------------------------


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
    """Yield the records of the batch that begins at byte 0, without checking its checksum (see `crc_is_valid`).

    Every length is checked against the available bytes. Raises RemoteWireError for a corrupt batch.
    """
    header = read_header(batch)
    if header.magic != MAGIC or header.size < HEADER_SIZE or header.size > len(batch):
        raise RemoteWireError(
            f"no whole batch: magic={header.magic} size={header.size} available={len(batch)}"
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
    """Return the record at `at` and the position after it. `log_append_time` replaces its timestamp, if given."""
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
    """Return the field at `at` and the position after it. `end` is the end of the record."""
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
    """Return one batch of records with ascending offsets from `base_offset` on. A producer numbers records from 0.

    `last_offset` is the original last offset of a batch that lost records to compaction; such a batch may be empty.
    `delete_horizon_ms` is the time from which its tombstones may be deleted. It replaces the base timestamp.
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
    """Encode a zigzag varint, in which small numbers of either sign take few bytes."""
    zigzag = (value << 1) ^ (value >> 63)
    return SMALL_VARINTS[zigzag] if zigzag < 1024 else uvarint(zigzag)


SMALL_VARINTS = tuple(uvarint(number) for number in range(1024))
