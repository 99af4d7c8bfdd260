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
    Damaged,
    Oversized,
    decompress,
    require_readable,
)
from barnabas.wire.contents import (
    NONE,
    SKIMMED_MAX,
    WALKED_MAX,
    Endless,
    Outline,
    require_possible,
    walk,
)
from barnabas.wire.damaged import unpack
from barnabas.wire.records import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    BatchHeader,
    stamp_create_time,
)
from barnabas.wire.skim import Skimmed, skim

BELIEVED_FROM_BYTES = 16 << 20
"""What unpacks to more takes long enough to hold up others; no client makes such batches unless it is told to."""
BELIEVED_FROM_PIECES = 2_000
"""So does what is packed in many small pieces. Clients make one of gzip, one for every 32 KiB or more of the others."""
SEEN_MAX = 200_000
SEEN_BYTES_MAX = 32 << 20
SEEN_PIECES_MAX = 20_000
"""Records with their headers, and bytes, of a batch whose every record has to be seen, and what they are packed in."""


SMALL_PACKED_BYTES = 128 << 10
SMALL_PLAIN_BYTES = 1 << 20
SMALL_PIECES = 200
SMALL_RECORDS, SMALL_WALK = 12_000, 4_000
"""What is validated on the event loop: 10 ms in the worst case. Reading a record takes 0.4 to 0.9 µs if `skim` can, and
2 µs in `walk`."""


LONG_MAX = 2**63 - 1


class LargeBatch(Exception):
    """Validating this batch would hold the event loop for too long."""


class Validation(Enum):
    """How `append` treats the records of a batch."""

    FULL = auto()
    IF_SMALL = auto()
    """Raise LargeBatch for one that takes long."""
    DONE = auto()
    """The caller has called `validate`, in a thread."""


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


def require_small(batch: memoryview, header: BatchHeader) -> None:
    """Raise LargeBatch for a batch that its size or its number of records rules out."""
    if header[12] > SMALL_RECORDS or (
        header[5] & COMPRESSION_MASK and len(batch) > SMALL_PACKED_BYTES
    ):
        raise LargeBatch


def too_large(size: int, config: TopicConfig) -> ApiError:
    if size > config.max_message_bytes:
        why = f"{size} bytes, max.message.bytes is {config.max_message_bytes}"
        return ApiError(ErrorCode.MESSAGE_TOO_LARGE, why)
    why = f"{size} bytes, segment.bytes is {config.segment_bytes}"
    return ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, why)


def in_producers_time(batch: memoryview, header: BatchHeader, config: TopicConfig) -> BatchHeader:
    """A batch that says its times are the broker's: no producer can know. Where the topic keeps the producer's time
    they are taken for that."""
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
    """Timestamps within the topic's bounds, and a key for every record of a compacted topic."""
    by_producer = config.message_timestamp_type == "CreateTime"
    latest = now_ms + config.message_timestamp_after_max_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    needs_key = "compact" in config.cleanup_policy
    if if_small:
        require_small(batch, header)
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
    """The batch holds the records that its header promises."""
    known = NONE
    if if_small:
        require_small(batch, header)
    if not header[5] & COMPRESSION_MASK and header[12] <= SKIMMED_MAX:
        body = bytes(batch[HEADER_SIZE:])
        known = skim(body, header[12])
        if known == (header[12], len(body)):
            return
    found = outlines(batch, header, known, may_believe=True, if_small=if_small)
    require_order(header, sum(record.offset_delta != index for index, record in found))


def require_order(header: BatchHeader, misnumbered: int) -> None:
    """What is packed Kafka would have to number anew, and cannot."""
    if misnumbered and header.compression:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the offsets do not go up by one")


def outlines(
    batch: memoryview,
    header: BatchHeader,
    known: Skimmed = NONE,
    *,
    may_believe: bool = False,
    if_small: bool = False,
) -> Iterator[tuple[int, Outline]]:
    """The records of a batch; ApiError with Kafka's code if they are not those that the header promises.

    `may_believe`: leave out the records that `skim` finds in order, and trust a batch beyond the limits. `if_small`:
    raise LargeBatch rather than work for long. In a compressed batch Kafka goes by the fields of a record alone.
    """
    codec = Compression(header.compression)
    is_packed = codec is not Compression.NONE
    try:
        body: memoryview | bytes = batch[HEADER_SIZE:]
        if is_packed:
            require_readable(codec, batch[HEADER_SIZE:])
            if if_small:
                body = opened_if_small(codec, batch[HEADER_SIZE:])
            else:
                body = opened(codec, batch[HEADER_SIZE:], header.count, may_believe=may_believe)
        require_possible(header.count, len(body))
        if is_packed and may_believe:
            known = skim(bytes(body), header.count)
        at_most = SMALL_WALK if if_small else WALKED_MAX if may_believe else SEEN_MAX
        found = walk(body, header.count, by_fields=is_packed, at_most=at_most, behind=known)
        yield from enumerate(found, known.records)
    except Oversized as error:
        if if_small:
            raise LargeBatch from None
        if not may_believe:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
    except RemoteWireError as error:
        raise ApiError(code_of(error, is_packed=is_packed), str(error)) from None


def opened_if_small(codec: Compression, packed: memoryview) -> bytes:
    """Kafka's error for damaged data depends on the records before the damage, which takes long to find out."""
    try:
        return decompress(codec, packed, limit=SMALL_PLAIN_BYTES, pieces=SMALL_PIECES)
    except Damaged:
        raise LargeBatch from None


def opened(codec: Compression, packed: memoryview, count: int, *, may_believe: bool) -> bytes:
    if may_believe:
        return unpack(codec, packed, count, limit=BELIEVED_FROM_BYTES, pieces=BELIEVED_FROM_PIECES)
    return unpack(codec, packed, count, limit=SEEN_BYTES_MAX, pieces=SEEN_PIECES_MAX)


def code_of(error: RemoteWireError, *, is_packed: bool) -> ErrorCode:
    """What Kafka calls it."""
    is_unknown = isinstance(error, Damaged) or (isinstance(error, Endless) and not is_packed)
    return ErrorCode.UNKNOWN_SERVER_ERROR if is_unknown else ErrorCode.INVALID_RECORD
