"""ListOffsets: the offset of a log at its start, at its end or at a timestamp."""

from __future__ import annotations

from barnabas.broker.bounded_work import Work
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.model import NO_EPOCH, NO_TIMESTAMP
from barnabas.replication.partition import Partition
from barnabas.security.acl.model import Operation
from barnabas.storage.segment_starts import list_segment_starts
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.fetch import READ_COMMITTED
from barnabas.wire.messages.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

OFFSET_NOT_AVAILABLE_SINCE = 5
SPECIAL_TIMESTAMP_SINCE = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
}
CONSUMER = -1
DEBUGGING = -2
"""Replica id of debugging tools, which may read any replica up to its log end offset."""


def handle(
    context: BrokerContext,
    request: ListOffsetsRequest,
    header: RequestHeader,
    connection: Connection,
) -> Work[ListOffsetsResponse]:
    version = header.api_version
    now_ms = context.clock.now_ms()
    counts: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for wanted in topic.partitions:
            key = (topic.name, wanted.partition_index)
            counts[key] = counts.get(key, 0) + 1
            yield None

    def list_partition_offset(
        name: str, wanted: ListOffsetsPartition, is_allowed: bool
    ) -> ListOffsetsPartitionResponse:
        index = wanted.partition_index
        try:
            if not is_allowed:
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if counts[name, index] > 1:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"{name}-{index} is in the request more than once"
                )
            partition = context.replicas.find(name, index)
            if request.replica_id == DEBUGGING:
                partition.require_replica(wanted.current_leader_epoch)
            else:
                partition.require_leader(wanted.current_leader_epoch)
            if version == 0:
                return list_segments(partition, wanted, request.replica_id, now_ms)
            return find_offset(
                partition, wanted, request.replica_id, request.isolation_level, version
            )
        except ApiError as error:
            return ListOffsetsPartitionResponse(partition_index=index, error_code=error.code)
        except StorageError as error:
            context.replicas.fail(context.replicas.find(name, index), error)
            return ListOffsetsPartitionResponse(
                partition_index=index, error_code=ErrorCode.KAFKA_STORAGE_ERROR
            )

    topics = []
    access = context.security.access
    for topic in request.topics:
        is_allowed = access.allows_topic(connection, Operation.DESCRIBE, topic.name)
        found = []
        for wanted in topic.partitions:
            found.append(list_partition_offset(topic.name, wanted, is_allowed))
            yield None
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(found)))
        yield None
    return ListOffsetsResponse(topics=tuple(topics))


def find_offset(
    partition: Partition,
    wanted: ListOffsetsPartition,
    replica_id: int,
    isolation_level: int,
    version: int,
) -> ListOffsetsPartitionResponse:
    log = partition.log
    is_consumer = replica_id == CONSUMER
    end = log.high_watermark if is_consumer else log.log_end_offset
    # Until the high watermark of a new leader reaches its epoch start, clients may have seen a larger one.
    is_behind = is_consumer and end < partition.epoch_start_offset
    if is_consumer and isolation_level == READ_COMMITTED:
        end = log.last_stable_offset
    timestamp, offset, epoch = NO_TIMESTAMP, -1, int(NO_EPOCH)
    at = wanted.timestamp
    require_version(at, version)
    if at == LATEST_TIMESTAMP:
        require_settled(is_behind, version)
        offset, epoch = end, partition.leader_epoch
    elif at in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        offset = log.log_start_offset
        epoch = log.epochs.epoch_at(offset)
    elif at >= 0 or at == MAX_TIMESTAMP:
        found = log.offset_for_timestamp(at) if at >= 0 else log.offset_of_max_timestamp()
        if found is not None and found[1] < end:
            timestamp, offset, epoch = found
        else:
            require_settled(is_behind, version)
    elif at != LATEST_TIERED_TIMESTAMP:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {at} is not supported")
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


def require_settled(is_behind: bool, version: int) -> None:
    if is_behind:
        raise ApiError(
            ErrorCode.OFFSET_NOT_AVAILABLE
            if version >= OFFSET_NOT_AVAILABLE_SINCE
            else ErrorCode.LEADER_NOT_AVAILABLE
        )


def require_version(timestamp: int, version: int) -> None:
    if version < SPECIAL_TIMESTAMP_SINCE.get(timestamp, 0):
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"timestamp {timestamp} is not supported in version {version}",
        )


def list_segments(
    partition: Partition, wanted: ListOffsetsPartition, replica_id: int, now_ms: int
) -> ListOffsetsPartitionResponse:
    """Return the base offsets of segments that begin before a timestamp, newest first (version 0)."""
    log = partition.log
    offsets = list_segment_starts(log, wanted.timestamp, now_ms)[: wanted.max_num_offsets]
    if replica_id == CONSUMER:
        # Consumers see nothing above the high watermark, so it replaces the log end offset.
        bound = log.high_watermark
        within = [offset for offset in offsets if offset <= bound]
        offsets = within if len(within) == len(offsets) else [bound, *within]
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, old_style_offsets=tuple(offsets)
    )
