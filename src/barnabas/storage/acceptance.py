"""What a leader does not take, where the batch header and the limits of the topic do not settle it at a glance."""

from __future__ import annotations

from barnabas.config.topic import TopicConfig
from barnabas.errors import ApiError, ErrorCode, RemoteWireError
from barnabas.model import NO_TIMESTAMP
from barnabas.wire.records import BatchHeader, records


def too_large(size: int, config: TopicConfig) -> ApiError:
    if size > config.max_message_bytes:
        why = f"{size} bytes, max.message.bytes is {config.max_message_bytes}"
        return ApiError(ErrorCode.MESSAGE_TOO_LARGE, why)
    why = f"{size} bytes, segment.bytes is {config.segment_bytes}"
    return ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, why)


def check_records(batch: memoryview, header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    """Timestamps within the topic's bounds, and a key for every record of a compacted topic."""
    by_producer = config.message_timestamp_type == "CreateTime"
    latest = now_ms + config.message_timestamp_after_max_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    needs_key = "compact" in config.cleanup_policy
    if by_producer and header.max_timestamp > latest:
        why = f"timestamp {header.max_timestamp} is later than {latest}"
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, why)
    try:
        for record in records(batch):
            if needs_key and record.key is None:
                why = "a compacted topic takes no record without a key"
                raise ApiError(ErrorCode.INVALID_RECORD, why)
            if by_producer and NO_TIMESTAMP != record.timestamp < earliest:
                why = f"timestamp {record.timestamp} is earlier than {earliest}"
                raise ApiError(ErrorCode.INVALID_TIMESTAMP, why)
    except RemoteWireError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None
