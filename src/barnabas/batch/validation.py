"""Validation of produced batches: header and checksum first, then every record.

`BatchValidator.validate` is the only entry. Most batches take less than a millisecond and are validated on the event
loop. If a batch could take more than a few milliseconds, `validate` raises LargeBatch, and the caller calls it again in
a thread.
"""

from __future__ import annotations

from typing import Final

from barnabas import code_mode
from barnabas.batch import recompression
from barnabas.batch.checksum import crc32c
from barnabas.batch.compression import (
    PRODUCED_BYTES_MAX,
    UNLIMITED,
    Compression,
    LimitExceeded,
    copy_in_steps,
    decompress,
    require_readable,
)
from barnabas.batch.header import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_START,
    HEADER_SIZE,
    LENGTH,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    stamp_create_time,
)
from barnabas.batch.record_checks import RecordRules, check_order, check_rules
from barnabas.config.topic import TopicConfig
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import NO_TIMESTAMP

SMALL_BATCH_BYTES: Final = 4 << 20
SMALL_COMPRESSED_BYTES: Final = 128 << 10
SMALL_PLAIN_BYTES: Final = 1 << 20
SMALL_BLOCKS: Final = 200
SMALL_RECORDS: Final = 40_000 if code_mode.is_compiled else 4_000
"""Larger batches are not read on the event loop: all, compressed and decompressed bytes, compressed blocks, records."""
PRODUCE_VERSION_LAST: Final = 11
LONG_MAX: Final = 2**63 - 1


class LargeBatch(Exception):
    """Validating this batch would block the event loop for too long."""


class BadRequest(ApiError):
    """Error for a batch that Kafka rejects without access to the log. The response has no log start offset."""


def drop_partial_batch(data: memoryview) -> memoryview:
    """Return the first batch alone if only a partial batch follows it, otherwise `data` unchanged.

    Kafka ignores a partial batch at the end of the records of a partition.
    """
    if len(data) >= HEADER_SIZE and data[MAGIC_AT] == MAGIC:
        if LENGTH.unpack_from(data, 8)[0] + LOG_OVERHEAD == len(data):
            return data
        header = BatchHeader(data)
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


def read_produced_header(data: memoryview, produce_version: int) -> BatchHeader:
    """Return the header of the one batch that a producer sent for a partition. Raises ApiError if `data` is not
    exactly one batch."""
    if len(data) < HEADER_SIZE or data[MAGIC_AT] != MAGIC:
        raise format_error(data, produce_version)
    header = BatchHeader(data)
    if header.length + LOG_OVERHEAD != len(data):
        raise length_error(header, len(data))
    return header


def check_header(data: memoryview, header: BatchHeader, produce_version: int) -> None:
    """Check the checksum, and the fields that do not depend on the topic."""
    if header.base_offset != 0:
        raise invalid_record(f"base offset is {header.base_offset}, must be 0")
    if crc32c(data[CRC_START:]) != header.crc:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "checksum of the batch does not match")
    if header.attributes != 0:
        check_attributes(header.attributes, produce_version)
    count, delta = header.count, header.last_offset_delta
    if count <= 0 or delta + 1 != count:
        raise invalid_record(f"record count is {count}, but last offset delta is {delta}")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise invalid_record(
            f"base sequence is {header.base_sequence}, but producer id is {header.producer_id}"
        )


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

    __slots__ = ("checks_rules", "config", "keeps_codec", "max_batch_bytes", "needs_key")

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self.keeps_codec = config.compression_type == "producer"
        self.max_batch_bytes = min(config.max_message_bytes, config.segment_bytes)
        self.needs_key = "compact" in config.cleanup_policy
        self.checks_rules = self.needs_key or (
            config.message_timestamp_type == "CreateTime"
            and (
                config.message_timestamp_before_max_ms < LONG_MAX
                or config.message_timestamp_after_max_ms < LONG_MAX
            )
        )
        """Whether the topic has requirements for the key or the timestamp of each record."""

    def validate(
        self,
        batch: memoryview,
        now_ms: int,
        *,
        produce_version: int = PRODUCE_VERSION_LAST,
        if_small: bool = False,
    ) -> tuple[memoryview, BatchHeader]:
        """Validate the batch that a producer sent for one partition. Return it in the codec of its topic and without
        the log append time attribute, with its header.

        Safe to call in a thread. Raises ApiError with the error code that Kafka returns, or LargeBatch if `if_small` is
        set and the batch takes long.
        """
        header = read_produced_header(batch, produce_version)
        if if_small and self.is_large(batch, header):
            raise LargeBatch
        if header.size > self.config.max_message_bytes:
            raise too_large_error(header.size, self.config)
        check_header(batch, header, produce_version)
        if not self.keeps_codec:
            batch, header = recompression.recompress_for_topic(batch, header, self.config)
        if header.size > self.max_batch_bytes:
            raise too_large_error(header.size, self.config)
        if header.attributes & LOG_APPEND_TIME:
            header = as_create_time(batch, header, self.config)
        try:
            self.check_records(read_body(batch, header, if_small), header, now_ms)
        except LimitExceeded as exceeded:
            if if_small:
                raise LargeBatch from None
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, str(exceeded)) from None
        except RemoteWireError as error:
            raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None
        return batch, header

    def is_large(self, batch: memoryview, header: BatchHeader) -> bool:
        """Return whether validation takes long, as far as the header tells."""
        return (
            header.count > SMALL_RECORDS
            or len(batch) > SMALL_BATCH_BYTES
            or (header.attributes & COMPRESSION_MASK != 0 and len(batch) > SMALL_COMPRESSED_BYTES)
            or not (self.keeps_codec or recompression.is_fast(batch, header, self.config))
        )

    def check_records(self, body: bytes, header: BatchHeader, now_ms: int) -> None:
        """Check that `body` holds exactly the records that the header announces, and that the topic accepts them."""
        is_compressed = header.compression != 0
        if self.checks_rules:
            rules = self.rules(now_ms)
            is_ordered = check_rules(body, header, rules, ignores_lengths=is_compressed)
        else:
            is_ordered = check_order(body, header.count, ignores_lengths=is_compressed)
        if is_compressed and not is_ordered:
            # Kafka tries to rewrite such a batch and fails with the same code.
            why = "the offset deltas of a compressed batch do not ascend by one"
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, why)

    def rules(self, now_ms: int) -> RecordRules:
        if self.config.message_timestamp_type != "CreateTime":
            return RecordRules(self.needs_key, -LONG_MAX, LONG_MAX)
        return RecordRules(
            self.needs_key,
            now_ms - self.config.message_timestamp_before_max_ms,
            now_ms + self.config.message_timestamp_after_max_ms,
        )


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


def read_body(batch: memoryview, header: BatchHeader, is_limited: bool) -> bytes:
    """Return the uncompressed records. Raises LimitExceeded, if `is_limited` above the limits of a small batch."""
    body = batch[HEADER_SIZE:]
    if not header.attributes & COMPRESSION_MASK:
        return copy_in_steps(body)
    codec = Compression(header.compression)
    require_readable(codec, body)
    if is_limited:
        return decompress(codec, body, limit=SMALL_PLAIN_BYTES, blocks_max=SMALL_BLOCKS)
    return decompress(codec, body, limit=PRODUCED_BYTES_MAX, blocks_max=UNLIMITED)
