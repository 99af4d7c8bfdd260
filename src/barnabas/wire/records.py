"""Record batches, magic 2: the unit that is produced, stored, replicated and fetched.

    position  size  field
           0     8  base offset                 the broker writes it          ┐ outside the crc
           8     4  length                      of everything behind it       │
          12     4  partition leader epoch      the broker writes it          │
          16     1  magic                       2                             │
          17     4  crc32c                      of bytes 21..end              ┘
          21     2  attributes                  0-2 codec, 3 log append time, 4 transactional, 5 control, 6 horizon
          23     4  last offset delta           kept by compaction, so it may exceed count - 1 on disk
          27     8  base timestamp              the delete horizon, if attribute 6 is set
          35     8  max timestamp
          43     8  producer id                 -1: not idempotent
          51     2  producer epoch
          53     4  base sequence
          57     4  count
          61        records, compressed as one block

A broker looks at these 61 bytes for nearly every request; the functions above the line run once per produced batch
and are written for speed, as is `skim.py`, which looks at the records. Below it, batches are opened and built record by
record.
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
    """The fixed part of a batch. `length` counts from byte 12, `size` from byte 0."""

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
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here

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
    try:
        return tuple.__new__(BatchHeader, HEADER.unpack_from(data, at))
    except struct.error:
        raise RemoteWireError(f"a batch header needs {HEADER_SIZE} bytes") from None


def crc_is_valid(data: memoryview, at: int, header: BatchHeader) -> bool:
    """Whether the whole batch is here and its bytes are the ones that were summed."""
    end = at + header.length + LOG_OVERHEAD
    if header.length < HEADER_SIZE - LOG_OVERHEAD or end > len(data):
        return False
    checksum: int = crc32c(data[at + CRC_START : end])
    return checksum == header.crc


def batch_headers(data: Bytes, at: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch. An incomplete batch at the end is not one: a fetch may be cut there.
    RemoteWireError where something stands that cannot be a batch."""
    while len(data) - at >= HEADER_SIZE:
        header = read_header(data, at)
        if header.length < HEADER_SIZE - LOG_OVERHEAD or header.magic != MAGIC:
            raise RemoteWireError(f"no batch at {at}: length {header.length}, magic {header.magic}")
        if at + header.length + LOG_OVERHEAD > len(data):
            return
        yield at, header
        at += header.length + LOG_OVERHEAD


class BadRequest(ApiError):
    """Refused before the log was looked at, so that its start is not told."""


def first_whole_batch(data: memoryview) -> memoryview:
    """Without the beginning of another batch behind it: what is not whole counts as not sent."""
    if len(data) >= HEADER_SIZE and data[MAGIC_AT] == MAGIC:
        if LENGTH.unpack_from(data, 8)[0] + LOG_OVERHEAD == len(data):
            return data
        header = read_header(data)
        behind = len(data) - header.size
        if header.length >= HEADER_SIZE - LOG_OVERHEAD and behind > 0:
            length = LENGTH.unpack_from(data, header.size + 8)[0] if behind > LOG_OVERHEAD else 0
            if behind <= MAGIC_AT or length + LOG_OVERHEAD > behind:
                return data[: header.size]
    return data


def holds_nothing_whole(data: memoryview) -> bool:
    """Neither a batch nor a message of an older format: both begin with an offset and a size."""
    return len(data) < LOG_OVERHEAD or LENGTH.unpack_from(data, 8)[0] + LOG_OVERHEAD > len(data)


def validate_produced(data: memoryview, produce_version: int) -> BatchHeader:
    """The header of the one batch a producer sent for one partition, or ApiError with the code Kafka answers.

    Everything here is seen from the header; whether the records keep what it promises is for the log to see.
    """
    if len(data) < HEADER_SIZE or data[MAGIC_AT] != MAGIC:
        raise refusal_of_format(data, produce_version)
    header = tuple.__new__(BatchHeader, HEADER.unpack_from(data))
    length, attributes, count = header[1], header[5], header[12]
    if length + LOG_OVERHEAD != len(data):
        raise refusal_of_length(header, len(data))
    if header[0] != 0:
        raise invalid(f"the base offset must be 0, it is {header[0]}")
    if crc32c(data[CRC_START:]) != header[4]:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "the checksum does not match")
    if attributes != 0:
        check_attributes(attributes, produce_version)
    if count <= 0 or header[6] + 1 != count:
        raise invalid(f"{count} records, but the last offset delta is {header[6]}")
    if header[9] >= 0 and header[11] < 0:
        raise invalid(f"producer {header[9]} sent base sequence {header[11]}")
    return header


def check_attributes(attributes: int, produce_version: int) -> None:
    codec = attributes & COMPRESSION_MASK
    if codec > Compression.ZSTD:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no codec {codec}")
    if codec == Compression.ZSTD and produce_version < 7:
        why = f"zstd needs Produce version 7, this is {produce_version}"
        raise BadRequest(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, why)
    if attributes & CONTROL:
        raise invalid("clients may not write control batches")


def refusal_of_format(data: memoryview, produce_version: int) -> ApiError:
    if len(data) <= MAGIC_AT:
        return BadRequest(ErrorCode.INVALID_RECORD, "there is no record batch")
    magic = data[MAGIC_AT]
    if magic > MAGIC:
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"there is no magic {magic}")
    if magic == MAGIC:
        return BadRequest(ErrorCode.INVALID_RECORD, "there is no whole record batch")
    if produce_version >= 3:
        why = f"Produce version {produce_version} takes magic 2 only, this is {magic}"
        return BadRequest(ErrorCode.INVALID_RECORD, why)
    why = f"messages of magic {magic} are not converted; use a client that sends Produce version 3"
    return ApiError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, why)


def refusal_of_length(header: BatchHeader, available: int) -> ApiError:
    if header.length < HEADER_SIZE - LOG_OVERHEAD:
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"a batch cannot have length {header.length}")
    if header.size > available:
        why = f"a batch of {header.size} bytes, but only {available} were sent"
        return BadRequest(ErrorCode.INVALID_RECORD, why)
    return BadRequest(ErrorCode.INVALID_RECORD, "exactly one record batch per partition is allowed")


def invalid(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, why)


stamp = struct.Struct(">qii").pack_into
"""(data, at, base offset, length, leader epoch): write what the leader assigns, with the length that stands between the
two once more. All stand outside the crc, so the batch stays valid."""


def stamp_log_append_time(data: memoryview, at: int, now_ms: int) -> None:
    """Every record of the batch now counts as of `now_ms`: an attribute says so and the max timestamp is the time."""
    header = read_header(data, at)
    ATTRIBUTES.pack_into(data, at + CRC_START, header.attributes | LOG_APPEND_TIME)
    TIMESTAMP.pack_into(data, at + 35, now_ms)
    CRC.pack_into(data, at + 17, crc32c(data[at + CRC_START : at + header.size]))


def stamp_create_time(data: memoryview, header: BatchHeader) -> BatchHeader:
    """The same batch, its times the producer's."""
    ATTRIBUTES.pack_into(data, CRC_START, header.attributes & ~LOG_APPEND_TIME)
    CRC.pack_into(data, 17, crc32c(data[CRC_START : header.size]))
    return read_header(data)


# ---- record by record -----------------------------------------------------------------------------------------


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def records(batch: memoryview) -> Iterator[Record]:
    """The records of the batch that begins at byte 0. The crc is not checked here: see `crc_is_valid`.

    Every length is checked against the bytes there are; RemoteWireError for a batch that contradicts itself.
    """
    header = read_header(batch)
    if header.magic != MAGIC or header.size < HEADER_SIZE or header.size > len(batch):
        raise RemoteWireError(
            f"no whole batch: magic {header.magic}, {header.size} of {len(batch)} bytes"
        )
    if header.compression > Compression.ZSTD:
        raise RemoteWireError(f"there is no codec {header.compression}")
    if header.count < 0:
        raise RemoteWireError(f"a batch of {header.count} records")
    body = decompress(
        Compression(header.compression),
        batch[HEADER_SIZE : header.size],
        limit=DECOMPRESSED_BYTES_MAX,
    )
    appended_at = header.max_timestamp if header.is_log_append_time else None
    at = 0
    try:
        for _ in range(header.count):
            record, at = read_record(body, at, header, appended_at)
            yield record
    except (IndexError, UnicodeDecodeError) as error:
        raise RemoteWireError(f"a record in the batch at {header.base_offset}: {error}") from None
    if at != len(body):
        raise RemoteWireError(f"{len(body) - at} bytes behind the last of {header.count} records")


def read_record(
    body: bytes, at: int, header: BatchHeader, appended_at: int | None
) -> tuple[Record, int]:
    length, at = read_varint(body, at)
    end = at + length
    if length < 0 or end > len(body):
        raise RemoteWireError(f"a record of {length} bytes in {len(body) - at}")
    timestamp_delta, at = read_varint(body, at + 1)
    offset_delta, at = read_varint(body, at)
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise RemoteWireError(f"offset delta {offset_delta} of {header.last_offset_delta}")
    key, at = read_bytes(body, at, end)
    value, at = read_bytes(body, at, end)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if body[at]:
        headers, at = read_record_headers(body, at, end)
    else:
        at += 1
    if at != end:
        raise RemoteWireError(f"a record says it ends at {end}, its fields end at {at}")
    timestamp = header.base_timestamp + timestamp_delta if appended_at is None else appended_at
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers), end


def read_record_headers(
    body: bytes, at: int, end: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = read_varint(body, at)
    # Two lengths at least stand for each header: a larger count is refused before anything is built from it.
    if not 0 <= count <= (end - at) // 2:
        raise RemoteWireError(f"{count} record headers in {end - at} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = read_bytes(body, at, end)
        if name is None:
            raise RemoteWireError("a record header without a name")
        value, at = read_bytes(body, at, end)
        headers.append((name.decode(), value))
    return tuple(headers), at


def read_bytes(body: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    byte = body[at]
    if byte < 0x80:
        length, at = (byte >> 1) ^ -(byte & 1), at + 1
    else:
        length, at = read_varint(body, at)
    if length < 0:
        if length != -1:
            raise RemoteWireError(f"a field of {length} bytes")
        return None, at
    stop = at + length
    if stop > end:
        raise RemoteWireError(f"a field of {length} bytes where {end - at} are left")
    return body[at:stop], stop


def read_varint(body: Bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of up to 64 bits, and where it ended. IndexError if the bytes run out."""
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
    raise RemoteWireError("a varint longer than 64 bits")


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
    """One batch of records whose offsets rise from `base_offset` on; a producer numbers its records from 0.

    `last_offset` keeps the end of a batch that lost records to compaction; such a batch may be empty.
    `delete_horizon_ms` is when its tombstones may go; it takes the place of the base timestamp.
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
    # With nothing in it there is nothing to decompress, and an empty frame of some codecs is refused by readers.
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
    """The batch around records that are already written one behind the other."""
    codec = Compression(attributes & COMPRESSION_MASK)
    packed: Bytes = compress(codec, body, compression_level) if codec else body
    batch = bytearray(
        HEADER.pack(
            base_offset,
            HEADER_SIZE - LOG_OVERHEAD + len(packed),
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
    batch += packed
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
    """Zigzag: small numbers of either sign take few bytes."""
    rest = (value << 1) ^ (value >> 63)
    return SMALL_VARINTS[rest] if rest < 1024 else write_uvarint(rest)


def write_uvarint(rest: int) -> bytes:
    target = bytearray()
    while rest > 0x7F:
        target.append(rest & 0x7F | 0x80)
        rest >>= 7
    target.append(rest)
    return bytes(target)


SMALL_VARINTS = tuple(write_uvarint(number) for number in range(1024))
