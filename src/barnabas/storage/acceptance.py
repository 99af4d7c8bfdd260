"""Validation of a produced batch beyond its header.

Most batches are validated on the event loop within a millisecond. A batch that could take longer raises LargeBatch
there; the caller validates it in a thread and appends it with Validation.DONE.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

from barnabas.config.topic import TopicConfig
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import NO_TIMESTAMP
from barnabas.wire.compression import (
    Compression,
    DecompressionError,
    LimitExceeded,
    decompress,
    require_readable,
)
from barnabas.wire.contents import (
    NOTHING_SKIMMED,
    SKIMMED_MAX,
    WALKED_MAX,
    InvalidRecordLength,
    Outline,
    require_possible,
    walk_records,
)
from barnabas.wire.damaged import unpack
from barnabas.wire.records import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    BatchHeader,
    stamp_create_time,
)
from barnabas.wire.skim import SkimResult, skim

TRUSTED_FROM_BYTES = 16 << 20
"""Decompressed size from which the records are trusted: reading them would delay others. No client sends such batches
by default."""
TRUSTED_FROM_PIECES = 2_000
"""Number of compressed pieces from which the records are trusted. Clients send one piece for gzip and one for every 32
KiB or more for the other codecs."""
SEEN_MAX = 200_000
SEEN_BYTES_MAX = 32 << 20
SEEN_PIECES_MAX = 20_000
"""Limits of a batch whose records must all be read: records and record headers, decompressed bytes, compressed
pieces."""


SMALL_PACKED_BYTES = 128 << 10
SMALL_PLAIN_BYTES = 1 << 20
SMALL_PIECES = 200
SMALL_RECORDS, SMALL_WALK = 12_000, 4_000
"""Limits of a batch that is validated on the event loop: 10 ms in the worst case. A record takes 0.4 to 0.9 µs in
`skim` and 2 µs in `walk_records`."""


LONG_MAX = 2**63 - 1


class LargeBatch(Exception):
    """Validating this batch would hold the event loop for too long."""


class Validation(Enum):
    """How much validation `append_as_leader` does."""

    FULL = auto()
    IF_SMALL = auto()
    """Raise LargeBatch for a batch that takes long."""
    DONE = auto()
    """None: the caller has called `BatchValidator.validate`, in a thread."""


class BatchValidator:
    """Validation of the records of a batch, by the settings of one topic."""

    __slots__ = ("config", "needs_fields", "timestamp_after_max_ms")

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self.timestamp_after_max_ms = config.message_timestamp_after_max_ms
        if config.message_timestamp_type == "LogAppendTime":
            self.timestamp_after_max_ms = LONG_MAX
        self.needs_fields = (
            "compact" in config.cleanup_policy or config.message_timestamp_before_max_ms < LONG_MAX
        )
        """These settings require to look at the key or the timestamp of each record."""

    def validate(
        self, batch: memoryview, header: BatchHeader, now_ms: int, *, if_small: bool = False
    ) -> None:
        """ApiError if a leader must reject the batch. May be called in a thread."""
        if self.needs_fields or header[8] - now_ms > self.timestamp_after_max_ms:
            check_records(batch, header, self.config, now_ms, if_small=if_small)
        else:
            check_contents(batch, header, if_small=if_small)


def require_small_batch(batch: memoryview, header: BatchHeader) -> None:
    """Raise LargeBatch for a batch that its size or its number of records rules out."""
    if header[12] > SMALL_RECORDS or (
        header[5] & COMPRESSION_MASK and len(batch) > SMALL_PACKED_BYTES
    ):
        raise LargeBatch


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


def check_records(
    batch: memoryview,
    header: BatchHeader,
    config: TopicConfig,
    now_ms: int,
    *,
    if_small: bool = False,
) -> None:
    """Validate the timestamp of each record against the topic's limits, and its key if the topic is compacted."""
    by_producer = config.message_timestamp_type == "CreateTime"
    latest = now_ms + config.message_timestamp_after_max_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    needs_key = "compact" in config.cleanup_policy
    if if_small:
        require_small_batch(batch, header)
    keyless: list[int] = []
    untimely: list[int] = []
    misnumbered = 0
    for index, record in outlines(batch, header, if_small=if_small):
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


def check_contents(batch: memoryview, header: BatchHeader, *, if_small: bool = False) -> None:
    """Check that the batch holds exactly the records that its header announces."""
    known = NOTHING_SKIMMED
    if if_small:
        require_small_batch(batch, header)
    if not header[5] & COMPRESSION_MASK and header[12] <= SKIMMED_MAX:
        body = bytes(batch[HEADER_SIZE:])
        known = skim(body, header[12])
        if known == (header[12], len(body)):
            return
    found = outlines(batch, header, known, may_trust=True, if_small=if_small)
    require_order(header, sum(record.offset_delta != index for index, record in found))


def require_order(header: BatchHeader, misnumbered: int) -> None:
    """Reject a compressed batch with wrong offset deltas, as Kafka does: it does not rewrite compressed records."""
    if misnumbered and header.compression:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "the offset deltas of a compressed batch do not ascend by one",
        )


def outlines(
    batch: memoryview,
    header: BatchHeader,
    known: SkimResult = NOTHING_SKIMMED,
    *,
    may_trust: bool = False,
    if_small: bool = False,
) -> Iterator[tuple[int, Outline]]:
    """Index and outline of each record. ApiError with Kafka's code if they do not match the header.

    `may_trust`: skip the records that `skim` finds valid, and trust a batch above the limits. `if_small`: raise
    LargeBatch instead of working for long. In a compressed batch Kafka reads the fields of a record and ignores its
    length.
    """
    codec = Compression(header.compression)
    is_packed = codec is not Compression.NONE
    try:
        body: memoryview | bytes = batch[HEADER_SIZE:]
        if is_packed:
            require_readable(codec, batch[HEADER_SIZE:])
            if if_small:
                body = decompress_small(codec, batch[HEADER_SIZE:])
            else:
                body = decompress_batch(
                    codec, batch[HEADER_SIZE:], header.count, may_trust=may_trust
                )
        require_possible(header.count, len(body))
        if is_packed and may_trust:
            known = skim(bytes(body), header.count)
        at_most = SMALL_WALK if if_small else WALKED_MAX if may_trust else SEEN_MAX
        found = walk_records(
            body, header.count, ignore_lengths=is_packed, limit=at_most, start=known
        )
        yield from enumerate(found, known.records)
    except LimitExceeded as error:
        if if_small:
            raise LargeBatch from None
        if not may_trust:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
    except RemoteWireError as error:
        raise ApiError(code_of(error, is_packed=is_packed), str(error)) from None


def decompress_small(codec: Compression, packed: memoryview) -> bytes:
    """Decompress a small batch. Damaged data raises LargeBatch too: the error code that Kafka returns depends on the
    records before the damage, and finding them takes long."""
    try:
        return decompress(codec, packed, limit=SMALL_PLAIN_BYTES, pieces=SMALL_PIECES)
    except DecompressionError:
        raise LargeBatch from None


def decompress_batch(
    codec: Compression, packed: memoryview, count: int, *, may_trust: bool
) -> bytes:
    if may_trust:
        return unpack(codec, packed, count, limit=TRUSTED_FROM_BYTES, pieces=TRUSTED_FROM_PIECES)
    return unpack(codec, packed, count, limit=SEEN_BYTES_MAX, pieces=SEEN_PIECES_MAX)


def code_of(error: RemoteWireError, *, is_packed: bool) -> ErrorCode:
    """The error code that Kafka returns for `error`."""
    is_unknown = isinstance(error, DecompressionError) or (
        isinstance(error, InvalidRecordLength) and not is_packed
    )
    return ErrorCode.UNKNOWN_SERVER_ERROR if is_unknown else ErrorCode.INVALID_RECORD
