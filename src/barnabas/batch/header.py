"""The header of a record batch of magic 2. Batches are produced, stored, replicated and fetched as a whole.

position  size  field
       0     8  base offset                 the broker writes it          ┐ outside the crc
       8     4  length                      of all bytes after this field │
      12     4  partition leader epoch      the broker writes it          │
      16     1  magic                       2                             │
      17     4  crc32c                      of bytes 21..end              ┘
      21     2  attributes                  bits 0-2 codec, 3 log append time, 4 transactional, 5 control,
                                            6 delete horizon
      23     4  last offset delta           count - 1, or more after compaction, which keeps it
      27     8  base timestamp              the delete horizon, if attribute bit 6 is set
      35     8  max timestamp
      43     8  producer id                 -1: not idempotent
      51     2  producer epoch              -1: not idempotent
      53     4  base sequence               -1: not idempotent
      57     4  count
      61        records, compressed together
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from barnabas.batch.checksum import crc32c
from barnabas.errors import RemoteWireError

Bytes = bytes | bytearray | memoryview

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
LOG_OVERHEAD: Final = 12
CRC_START: Final = 21
MAGIC: Final = 2
MAGIC_AT: Final = 16

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

CRC: Final = struct.Struct(">I")
LENGTH: Final = struct.Struct(">i")
ATTRIBUTES: Final = struct.Struct(">h")
TIMESTAMP: Final = struct.Struct(">q")


HEADER_FIELDS: Final = (
    "base_offset",
    "length",
    "partition_leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "count",
)


class BatchHeader:
    """The fixed part of the batch at position `at`, not validated. Raises RemoteWireError if it is incomplete.

    `length` counts bytes from position 12, `size` from position 0.
    """

    __slots__ = HEADER_FIELDS

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
    count: int

    def __init__(self, data: Bytes, at: int = 0) -> None:
        if at + HEADER_SIZE > len(data):
            raise RemoteWireError(
                f"batch header at {at} needs {HEADER_SIZE} bytes, got {max(len(data) - at, 0)}"
            )
        (
            self.base_offset,
            self.length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = HEADER.unpack_from(data, at)

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
        header = BatchHeader(data, at)
        if header.length < HEADER_SIZE - LOG_OVERHEAD or header.magic != MAGIC:
            raise RemoteWireError(f"no batch at {at}: length={header.length} magic={header.magic}")
        if at + header.length + LOG_OVERHEAD > len(data):
            return
        yield at, header
        at += header.length + LOG_OVERHEAD


stamp: Final = struct.Struct(">qii").pack_into
"""`stamp(data, at, base_offset, length, leader_epoch)`: write the fields that the leader assigns.

The length is between the other two fields and is written unchanged. The checksum covers none of them and stays valid.
"""


def stamp_log_append_time(data: memoryview, at: int, now_ms: int) -> None:
    """Set the timestamp of every record to `now_ms`: set the attribute and the max timestamp, update the checksum."""
    header = BatchHeader(data, at)
    ATTRIBUTES.pack_into(data, at + CRC_START, header.attributes | LOG_APPEND_TIME)
    TIMESTAMP.pack_into(data, at + 35, now_ms)
    CRC.pack_into(data, at + 17, crc32c(data[at + CRC_START : at + header.size]))


def stamp_create_time(data: memoryview, header: BatchHeader) -> BatchHeader:
    """Clear the log append time attribute, update the checksum, and return the new header."""
    ATTRIBUTES.pack_into(data, CRC_START, header.attributes & ~LOG_APPEND_TIME)
    CRC.pack_into(data, 17, crc32c(data[CRC_START : header.size]))
    return BatchHeader(data)
