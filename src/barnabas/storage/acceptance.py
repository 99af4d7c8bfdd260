"""Validation of a produced batch beyond its header.

Most batches are validated on the event loop within a millisecond. A batch that could take longer raises LargeBatch
there; the caller then calls `BatchValidator.prepare` in a thread and appends the batch with Validation.DONE.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

from barnabas.config.topic import TopicConfig
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import NO_TIMESTAMP
from barnabas.wire import recompress
from barnabas.wire.compression import Compression, LimitExceeded, decompress, require_readable
from barnabas.wire.contents import SKIMMED_MAX, WALKED_MAX, Outline, require_possible, walk_records
from barnabas.wire.records import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    BatchHeader,
    stamp_create_time,
)
from barnabas.wire.skim import skim


class ReadLimits(NamedTuple):
    """How much of a batch is read: decompressed bytes, compressed pieces, and records plus record headers."""

    plain_bytes: int
    pieces: int
    records: int


SMALL = ReadLimits(plain_bytes=1 << 20, pieces=200, records=4_000)
"""For a batch on the event loop: 10 ms in the worst case."""
TRUSTED = ReadLimits(plain_bytes=16 << 20, pieces=2_000, records=WALKED_MAX)
"""A batch above these limits is trusted: reading it would delay others. No client sends such batches by default."""
ALL = ReadLimits(plain_bytes=32 << 20, pieces=20_000, records=SKIMMED_MAX)
"""For a batch whose records must all be read. A batch above these limits is rejected."""
SMALL_PACKED_BYTES = 128 << 10
SMALL_RECORDS = 12_000
"""Limits of a batch that is read on the event loop at all. A record takes 0.4 to 0.9 µs in `skim` and 2 µs in
`walk_records`."""
LONG_MAX = 2**63 - 1


class LargeBatch(Exception):
    """Validating this batch would hold the event loop for too long."""


class Validation(Enum):
    """How much validation `append_as_leader` does."""

    FULL = auto()
    IF_SMALL = auto()
    """Raise LargeBatch for a batch that takes long."""
    DONE = auto()
    """None: the caller has called `BatchValidator.prepare`, in a thread."""


class BatchValidator:
    """Validation of produced batches by the settings of one topic."""

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
        """Whether these settings require the key or the timestamp of each record."""

    def prepare(
        self, batch: memoryview, header: BatchHeader, now_ms: int, *, if_small: bool = False
    ) -> tuple[memoryview, BatchHeader]:
        """Validate a batch, and return it in the codec and with the timestamp type of its topic.

        Safe to call in a thread. Raises ApiError, or LargeBatch if `if_small` is set and the batch takes long.
        """
        if not self.keeps_codec:
            if if_small and not recompress.is_fast(batch, header, self.config):
                raise LargeBatch
            batch, header = recompress.recompress_for_topic(batch, header, self.config)
        if header[1] + LOG_OVERHEAD > self.max_batch_bytes:
            raise too_large_error(header.size, self.config)
        if header[5] & LOG_APPEND_TIME:
            header = as_create_time(batch, header, self.config)
        self.check_records(batch, header, now_ms, if_small=if_small)
        return batch, header

    def check_records(
        self, batch: memoryview, header: BatchHeader, now_ms: int, *, if_small: bool
    ) -> None:
        if if_small and (
            header[12] > SMALL_RECORDS
            or (header[5] & COMPRESSION_MASK and len(batch) > SMALL_PACKED_BYTES)
        ):
            raise LargeBatch
        reads_fields = self.needs_fields or header[8] - now_ms > self.timestamp_after_max_ms
        try:
            if reads_fields:
                check_fields(batch, header, self.config, now_ms, SMALL if if_small else ALL)
            else:
                check_contents(batch, header, SMALL if if_small else TRUSTED)
        except LimitExceeded as error:
            if if_small:
                raise LargeBatch from None
            if reads_fields:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
        except RemoteWireError as error:
            raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None


def too_large_error(size: int, config: TopicConfig) -> ApiError:
    if size > config.max_message_bytes:
        why = f"{size} bytes, max.message.bytes is {config.max_message_bytes}"
        return ApiError(ErrorCode.MESSAGE_TOO_LARGE, why)
    why = f"{size} bytes, segment.bytes is {config.segment_bytes}"
    return ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, why)


def as_create_time(batch: memoryview, header: BatchHeader, config: TopicConfig) -> BatchHeader:
    """Handle a produced batch that claims log append time, which only a broker sets.

    A topic with create time treats its timestamps as create time. Rejected if there are none, or by other topics.
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
    known = skim(body, count)
    if known == (count, len(body)):
        return
    is_packed = header.compression != 0
    found = walk_records(body, count, ignore_lengths=is_packed, limit=limits.records, start=known)
    require_order(
        header,
        sum(record.offset_delta != index for index, record in enumerate(found, known.records)),
    )


def check_fields(
    batch: memoryview, header: BatchHeader, config: TopicConfig, now_ms: int, limits: ReadLimits
) -> None:
    """Validate the timestamp of each record against the topic's limits, and its key if the topic is compacted."""
    by_producer = config.message_timestamp_type == "CreateTime"
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
        elif by_producer and timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            untimely.append(index)
        else:
            misnumbered += record.offset_delta != index
    if untimely:
        why = f"a timestamp is not within {earliest} and {latest}"
        indexes = tuple(sorted((*untimely, *keyless)))
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, why, record_indexes=indexes)
    if keyless:
        why = "a compacted topic takes no record without a key"
        raise ApiError(ErrorCode.INVALID_RECORD, why, record_indexes=tuple(keyless))
    require_order(header, misnumbered)


def outlines(batch: memoryview, header: BatchHeader, limits: ReadLimits) -> Iterator[Outline]:
    """Yield the outline of each record. Raises RemoteWireError if they do not match the header."""
    body = read_body(batch, header, limits)
    require_possible(header.count, len(body))
    is_packed = header.compression != 0
    return walk_records(body, header.count, ignore_lengths=is_packed, limit=limits.records)


def read_body(batch: memoryview, header: BatchHeader, limits: ReadLimits) -> memoryview | bytes:
    """Return the uncompressed records."""
    body = batch[HEADER_SIZE:]
    if not header[5] & COMPRESSION_MASK:
        return body
    codec = Compression(header.compression)
    require_readable(codec, body)
    return decompress(codec, body, limit=limits.plain_bytes, pieces=limits.pieces)


def require_order(header: BatchHeader, misnumbered: int) -> None:
    """Reject a compressed batch with wrong offset deltas, as Kafka does: it does not rewrite compressed records."""
    if misnumbered and header.compression:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "the offset deltas of a compressed batch do not ascend by one",
        )
