"""DeleteRecords: advances the log start offset of the leader, and waits until every live replica has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple

from barnabas.broker.bounded_work import Work, call_in_thread_if_large
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.metadata.cache import INTERNAL_TOPICS
from barnabas.replication.partition import Partition
from barnabas.security.acl.model import Operation
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

UP_TO_HIGH_WATERMARK = -1

Results = list[list[DeleteRecordsPartitionResult]]


class PendingPartition(NamedTuple):
    """A partition that waits for its followers, and the position of its result in the response."""

    partition: Partition
    offset: int
    topic: int
    position: int


def handle(
    context: BrokerContext, request: DeleteRecordsRequest, _: RequestHeader, connection: Connection
) -> Work[DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]]:
    waits: list[PendingPartition] = []
    results: Results = []
    for topic in request.topics:
        outcomes: list[DeleteRecordsPartitionResult] = []
        results.append(outcomes)
        access = context.security.access
        is_allowed = access.allows_topic(connection, Operation.DELETE, topic.name)
        yield None
        for wanted in topic.partitions:
            yield None
            index = wanted.partition_index
            try:
                if not is_allowed:
                    raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                partition = context.replicas.find(topic.name, index)
                offset = delete_before(partition, wanted.offset)
            except ApiError as error:
                outcomes.append(DeleteRecordsPartitionResult(index, error_code=error.code))
                continue
            except StorageError as error:
                context.replicas.fail(context.replicas.find(topic.name, index), error)
                code = ErrorCode.KAFKA_STORAGE_ERROR
                outcomes.append(DeleteRecordsPartitionResult(index, error_code=code))
                continue
            low_watermark = partition.low_watermark()
            if low_watermark < offset:
                waits.append(PendingPartition(partition, offset, len(results) - 1, len(outcomes)))
            outcomes.append(DeleteRecordsPartitionResult(index, low_watermark=low_watermark))
    if waits:
        return wait_for_followers(request, results, waits)
    size = len(results) + sum(map(len, results))
    return (
        yield from call_in_thread_if_large(size, build_delete_records_response, request, results)
    )


def delete_before(partition: Partition, offset: int) -> int:
    """Advance the log start offset to `offset`. Return `offset`, or the high watermark if it is -1."""
    partition.require_leader(-1)
    if partition.topic in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is an internal topic")
    log = partition.log
    if "delete" not in log.config.cleanup_policy:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"cleanup.policy of {partition.topic} does not include delete",
        )
    target = log.high_watermark if offset == UP_TO_HIGH_WATERMARK else offset
    if target < 0 or target > log.high_watermark:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is not between 0 and the high watermark {log.high_watermark}",
        )
    log.advance_log_start(target)
    partition.announce_to_followers()
    partition.notify()
    return target


async def wait_for_followers(
    request: DeleteRecordsRequest, results: Results, waits: list[PendingPartition]
) -> DeleteRecordsResponse:
    """Wait for the followers. The leader has deleted its records even if this times out."""
    deadline = asyncio.get_running_loop().time() + max(request.timeout_ms, 0) / 1000
    for wait in waits:
        before = results[wait.topic][wait.position]
        try:
            async with asyncio.timeout_at(deadline):
                low_watermark = await wait_for_low_watermark(wait.partition, wait.offset)
            after = before._replace(low_watermark=low_watermark)
        except TimeoutError:
            after = before._replace(error_code=ErrorCode.REQUEST_TIMED_OUT)
        except ApiError as error:
            after = before._replace(error_code=error.code, low_watermark=-1)
        results[wait.topic][wait.position] = after
    return build_delete_records_response(request, results)


async def wait_for_low_watermark(partition: Partition, offset: int) -> int:
    """Wait for the low watermark to reach `offset` and return it. Raises ApiError if leadership is lost."""
    while True:
        partition.require_leader(-1)
        low_watermark = partition.low_watermark()
        if low_watermark >= offset:
            return low_watermark
        moved = asyncio.Event()
        partition.start_watchers[moved.set] = None
        try:
            await moved.wait()
        finally:
            partition.start_watchers.pop(moved.set, None)


def build_delete_records_response(
    request: DeleteRecordsRequest, results: Results
) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(name=topic.name, partitions=tuple(outcomes))
            for topic, outcomes in zip(request.topics, results, strict=True)
        )
    )
