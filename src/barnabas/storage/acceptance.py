"""What a leader does not take, where the batch header and the limits of the topic do not settle it at a glance."""

from __future__ import annotations

from barnabas.config.topic import TopicConfig
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import NO_TIMESTAMP
from barnabas.wire.compression import Damaged
from barnabas.wire.records import BatchHeader, records, stamp_create_time


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


def check_records(batch: memoryview, header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    """Timestamps within the topic's bounds, and a key for every record of a compacted topic."""
    by_producer = config.message_timestamp_type == "CreateTime"
    latest = now_ms + config.message_timestamp_after_max_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    needs_key = "compact" in config.cleanup_policy
    keyless: list[int] = []
    untimely: list[int] = []
    try:
        for index, record in enumerate(records(batch)):
            if needs_key and record.key is None:
                keyless.append(index)
            elif (
                by_producer
                and record.timestamp != NO_TIMESTAMP
                and not earliest <= record.timestamp <= latest
            ):
                untimely.append(index)
    except Damaged as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
    except RemoteWireError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None
    if untimely:
        why = f"a timestamp is not within {earliest} and {latest}"
        indexes = tuple(sorted((*untimely, *keyless)))
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, why, record_indexes=indexes)
    if keyless:
        why = "a compacted topic takes no record without a key"
        raise ApiError(ErrorCode.INVALID_RECORD, why, record_indexes=tuple(keyless))
