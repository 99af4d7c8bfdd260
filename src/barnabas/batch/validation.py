"""Validation of produced batches: header and checksum first, then the records (up to the limits below).

Most batches are validated on the event loop within a millisecond. If a batch could take more than about 10 ms,
`BatchValidator.prepare` raises LargeBatch. The caller then calls `prepare` in a thread, and appends the batch with
Validation.DONE.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

from barnabas.batch import recompression
from barnabas.batch.checksum import crc32c
from barnabas.batch.compression import Compression, LimitExceeded, decompress, require_readable
from barnabas.batch.header import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    read_header,
    stamp_create_time,
)
from barnabas.batch.record_walk import (
    SKIMMED_MAX,
    WALKED_MAX,
    Outline,
    require_possible,
    walk_records,
)
from barnabas.batch.skim import skim
from barnabas.config.topic import TopicConfig
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import NO_TIMESTAMP


class ReadLimits(NamedTuple):
    """Limits of reading a batch: decompressed bytes, compressed blocks (gzip: members), records plus record headers."""

    plain_bytes: int
    blocks: int
    records: int


SMALL = ReadLimits(plain_bytes=1 << 20, blocks=200, records=4_000)
"""For a batch that is read on the event loop: at most 10 ms."""
BEST_EFFORT = ReadLimits(plain_bytes=16 << 20, blocks=2_000, records=WALKED_MAX)
"""For a batch whose records are read if possible. Above these limits they are trusted: reading them would delay other
requests. No client sends such batches by default."""
REQUIRED = ReadLimits(plain_bytes=32 << 20, blocks=20_000, records=SKIMMED_MAX)
"""For a batch whose records must all be read. A batch above these limits is rejected."""
SMALL_COMPRESSED_BYTES = 128 << 10
SMALL_RECORDS = 12_000
"""Larger batches are not read on the event loop. `skim` takes 0.4 to 0.9 µs per record. `walk_records` takes 2 µs, so
SMALL has a lower limit for the records that it reads."""
LONG_MAX = 2**63 - 1


class LargeBatch(Exception):
    """Validating this batch would block the event loop for too long."""


class Validation(Enum):
    """What `append_as_leader` validates."""

    FULL = auto()
    IF_SMALL = auto()
    """Full validation, but LargeBatch is raised for a batch that takes long."""
    DONE = auto()
    """Nothing: the caller has called `BatchValidator.prepare` in a thread."""


class BadRequest(ApiError):
    """Error for a batch that Kafka rejects before it looks up the log. The response has no log start offset."""


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
    """Return whether `data` begins with an incomplete batch, or an incomplete message of an older format.

    Both formats begin with an offset and a length.
    """
    return len(data) < LOG_OVERHEAD or LENGTH.unpack_from(data, 8)[0] + LOG_OVERHEAD > len(data)


def validate_produced(data: memoryview, produce_version: int) -> BatchHeader:
    """Validate header and checksum of the one batch that a producer sent for a partition. Return its header.

    `BatchValidator` validates the records. Raises ApiError with the error code that Kafka returns.
    """
    if len(data) < HEADER_SIZE or data[MAGIC_AT] != MAGIC:
        raise format_error(data, produce_version)
    # Fields by index, because this runs for every batch: 0 base offset, 1 length, 4 crc, 5 attributes,
    # 6 last offset delta, 8 max timestamp, 9 producer id, 11 base sequence, 12 count.
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
    """Return the error for a batch whose length differs from the size of the data."""
    if header.length < HEADER_SIZE - LOG_OVERHEAD:
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"invalid batch length {header.length}")
    if header.size > available:
        why = f"batch has {header.size} bytes, but the request has only {available}"
        return BadRequest(ErrorCode.INVALID_RECORD, why)
    return BadRequest(ErrorCode.INVALID_RECORD, "more than one record batch for a partition")


def invalid_record(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, why)


class BatchValidator:
    """Validates produced batches by the settings of one topic."""

    __slots__ = (
        "config",
        "keeps_codec",
        "max_batch_bytes",
        "needs_fields",
        "timestamp_after_max_ms",
    )

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self.keeps_codec = config.compression_type == "producer"
        self.max_batch_bytes = min(config.max_message_bytes, config.segment_bytes)
        self.timestamp_after_max_ms = config.message_timestamp_after_max_ms
        if config.message_timestamp_type == "LogAppendTime":
            self.timestamp_after_max_ms = LONG_MAX
        self.needs_fields = (
            "compact" in config.cleanup_policy or config.message_timestamp_before_max_ms < LONG_MAX
        )
        """Whether the validator must read the key or the timestamp of each record, because of the topic's settings."""

    def prepare(
        self, batch: memoryview, header: BatchHeader, now_ms: int, *, if_small: bool = False
    ) -> tuple[memoryview, BatchHeader]:
        """Validate a batch, and return it in the codec of its topic, without the log append time attribute.

        Safe to call in a thread. Raises ApiError, or LargeBatch if `if_small` is set and the batch takes long.
        """
        if not self.keeps_codec:
            if if_small and not recompression.is_fast(batch, header, self.config):
                raise LargeBatch
            batch, header = recompression.recompress_for_topic(batch, header, self.config)
        if header[1] + LOG_OVERHEAD > self.max_batch_bytes:
            raise too_large_error(header.size, self.config)
        if header[5] & LOG_APPEND_TIME:
            header = as_create_time(batch, header, self.config)
        if if_small and (
            header[12] > SMALL_RECORDS
            or (header[5] & COMPRESSION_MASK and len(batch) > SMALL_COMPRESSED_BYTES)
        ):
            raise LargeBatch
        reads_fields = self.needs_fields or header[8] - now_ms > self.timestamp_after_max_ms
        try:
            if reads_fields:
                check_fields(batch, header, self.config, now_ms, SMALL if if_small else REQUIRED)
            else:
                check_contents(batch, header, SMALL if if_small else BEST_EFFORT)
        except LimitExceeded as exceeded:
            if if_small:
                raise LargeBatch from None
            if reads_fields:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(exceeded)) from None
        except RemoteWireError as error:
            raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None
        return batch, header


def too_large_error(size: int, config: TopicConfig) -> ApiError:
    if size > config.max_message_bytes:
        why = f"{size} bytes, max.message.bytes is {config.max_message_bytes}"
        return ApiError(ErrorCode.MESSAGE_TOO_LARGE, why)
    why = f"{size} bytes, segment.bytes is {config.segment_bytes}"
    return ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, why)


def as_create_time(batch: memoryview, header: BatchHeader, config: TopicConfig) -> BatchHeader:
    """Handle a produced batch with the log append time attribute, which only a broker may set.

    In a topic with create time, clear the attribute and return the new header. Raises ApiError in other topics, or if
    the batch has no timestamp.
    """
    if config.message_timestamp_type != "CreateTime" or header.max_timestamp == NO_TIMESTAMP:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "only the broker sets log append time")
    return stamp_create_time(batch, header)


def check_contents(batch: memoryview, header: BatchHeader, limits: ReadLimits) -> None:
    """Check that the batch holds exactly the records that its header announces."""
    body = bytes(read_body(batch, header, limits))
    count = header[12]
    if count > SKIMMED_MAX:
        require_possible(count, len(body))
    skimmed = skim(body, count)
    if skimmed == (count, len(body)):
        return
    # `skim` is fast, but stops at the first unusual record. `walk_records` reads the rest.
    is_compressed = header.compression != 0
    rest = walk_records(
        body, count, ignore_lengths=is_compressed, limit=limits.records, start=skimmed
    )
    require_order(
        header,
        sum(record.offset_delta != index for index, record in enumerate(rest, skimmed.records)),
    )


def check_fields(
    batch: memoryview, header: BatchHeader, config: TopicConfig, now_ms: int, limits: ReadLimits
) -> None:
    """Validate the timestamp of each record against the topic's limits, and its key if the topic is compacted."""
    is_create_time = config.message_timestamp_type == "CreateTime"
    latest = now_ms + config.message_timestamp_after_max_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    needs_key = "compact" in config.cleanup_policy
    keyless: list[int] = []
    untimely: list[int] = []
    misnumbered = 0
    for index, record in enumerate(outlines(batch, header, limits)):
        timestamp = header.base_timestamp + record.timestamp_delta
        if needs_key and not record.has_key:
            keyless.append(index)
        elif is_create_time and timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            untimely.append(index)
        else:
            misnumbered += record.offset_delta != index
    if untimely:
        why = f"a timestamp is not between {earliest} and {latest}"
        indexes = tuple(sorted((*untimely, *keyless)))
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, why, record_indexes=indexes)
    if keyless:
        why = "a compacted topic requires a key in each record"
        raise ApiError(ErrorCode.INVALID_RECORD, why, record_indexes=tuple(keyless))
    require_order(header, misnumbered)


def outlines(batch: memoryview, header: BatchHeader, limits: ReadLimits) -> Iterator[Outline]:
    """Yield the outline of each record. Raises RemoteWireError if the records do not match the header."""
    body = read_body(batch, header, limits)
    require_possible(header.count, len(body))
    is_compressed = header.compression != 0
    return walk_records(body, header.count, ignore_lengths=is_compressed, limit=limits.records)


def read_body(batch: memoryview, header: BatchHeader, limits: ReadLimits) -> memoryview | bytes:
    """Return the uncompressed records."""
    body = batch[HEADER_SIZE:]
    if not header[5] & COMPRESSION_MASK:
        return body
    codec = Compression(header.compression)
    require_readable(codec, body)
    return decompress(codec, body, limit=limits.plain_bytes, blocks_max=limits.blocks)


def require_order(header: BatchHeader, misnumbered: int) -> None:
    """Reject a compressed batch with wrong offset deltas. Kafka tries to rewrite it and fails with the same code."""
    if misnumbered and header.compression:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "the offset deltas of a compressed batch do not ascend by one",
        )
