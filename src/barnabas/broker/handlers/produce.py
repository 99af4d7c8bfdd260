"""Produce: appends a batch to each partition, and responds when enough replicas have it.

    acks  0   no response; an error closes the connection, so that the client refreshes its metadata
    acks  1   response when the leader has the batch
    acks -1   response when every in-sync replica has the batch

If the flush settings of a topic require it, acks 1 and -1 also wait for an fsync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import Any, NamedTuple

from barnabas.batch.header import TRANSACTIONAL
from barnabas.batch.validation import (
    BadRequest,
    LargeBatch,
    Validation,
    drop_partial_batch,
    has_only_partial_batch,
    validate_produced,
)
from barnabas.broker.bounded_work import Work, call_in_thread_if_large
from barnabas.broker.byte_quotas import PRODUCE_RATE
from barnabas.broker.connection import CloseConnection, Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.control_plane import may_produce_to
from barnabas.broker.handlers.current_leader import find_endpoints, find_leader
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.metadata.cache import INTERNAL_TOPICS
from barnabas.model import NO_TIMESTAMP
from barnabas.replication.partition import Partition
from barnabas.storage.log import AppendInfo
from barnabas.wire.codec import Records
from barnabas.wire.fast import RepeatedProduce
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.current_leader import NodeEndpoint
from barnabas.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceResponse,
)
from barnabas.world.ports import Clock, Part

# With these errors the response has no log start offset.
WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)

ACKS = (1, -1, 0)
ONE_BATCH_SINCE = 3  # in older versions a partial batch is ignored
CURRENT_LEADER_SINCE = 10
Waits = list[tuple[int, int, asyncio.Future[None]]]
"""Position of the topic, position of the partition in the topic, and the future to wait for."""


class ProduceResult(NamedTuple):
    topics: tuple[TopicProduceResponse, ...]
    node_endpoints: tuple[NodeEndpoint, ...] = ()
    throttle_time_ms: int = 0


class RequestOrigin(NamedTuple):
    version: int
    listener: str
    throttle_time_ms: int = 0


def handle(
    context: BrokerContext, request: ProduceRequest, header: RequestHeader, connection: Connection
) -> Work[ProduceResult | Awaitable[ProduceResult] | None]:
    acks = request.acks
    version = header.api_version
    require_records(request)
    waits: Waits = []
    topics: list[list[PartitionProduceResponse]] = []
    try:
        failed = yield from append_all(context, request, header, connection, waits, topics)
    except GeneratorExit:
        cancel_waits(waits)
        raise
    names = [topic.name for topic in request.topic_data]
    throttle_ms = 0
    if context.byte_quotas.is_active:
        size = sum(len(records or b"") for _, data in request.topic_data for _, records in data)
        throttle_ms = context.byte_quotas.charge(connection, PRODUCE_RATE, header.client_id, size)
    origin = RequestOrigin(version, connection.listener_name, throttle_ms)
    if acks == 0:
        if failed:
            raise CloseConnection(
                f"produce with acks=0 failed: {summarize_errors(request, topics)}"
            )
        return None
    if waits:
        return wait_for_acks(context, origin, names, topics, waits, request.timeout_ms)
    return (
        yield from call_in_thread_if_large(
            len(topics), partial(build_result, context, origin, names, topics)
        )
    )


def append_all(
    context: BrokerContext,
    request: ProduceRequest,
    header: RequestHeader,
    connection: Connection,
    waits: Waits,
    topics: list[list[PartitionProduceResponse]],
) -> Work[bool]:
    """Append every batch of a request, and fill `waits` and `topics`. Return whether an append failed."""
    partitions = context.replicas.partitions
    failed = False
    for name, data in request.topic_data:
        responses: list[PartitionProduceResponse] = []
        for index, records in data:
            partition = partitions.get((name, index))
            try:
                if partition is None:
                    raise context.replicas.missing_partition_error(name, index)
                is_allowed = may_produce_to(name, header.client_id, connection)
                info = yield from append(
                    partition, records, header.api_version, request, context.clock, is_allowed
                )
            except (ApiError, StorageError) as error:
                failed = True
                responses.append(build_error_response(context, index, error, partition))
            else:
                waits += find_waits(
                    context, partition, info, request.acks, len(topics), len(responses)
                )
                responses.append(build_success_response(index, info))
            yield None
        topics.append(responses)
    return failed


def require_records(request: ProduceRequest) -> None:
    """Raise CloseConnection if a partition has null records. Kafka sends no response then, and the client waits."""
    for name, data in request.topic_data:
        for index, records in data:
            if records is None:
                raise CloseConnection(f"produce without records for {name}-{index}")


def append(
    partition: Partition,
    records: Records | None,
    version: int,
    request: ProduceRequest,
    clock: Clock,
    is_allowed: bool,
) -> Work[AppendInfo]:
    acks = request.acks
    if acks not in ACKS:
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks} is not -1, 0 or 1")
    if not is_allowed:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"only brokers write to {partition.topic}"
        )
    batch = drop_partial_batch(memoryview(records or b""))
    if version < ONE_BATCH_SINCE and has_only_partial_batch(batch):
        return AppendInfo(-1, -1, NO_TIMESTAMP, partition.log.log_start_offset)
    header = validate_produced(batch, version)
    if header.is_transactional and request.transactional_id is None:
        raise BadRequest(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch needs a transactional id in its request",
        )
    now_ms = clock.now_ms()
    validation = Validation.IF_SMALL
    try:
        return partition.append(batch, header, acks=acks, now_ms=now_ms, validation=validation)
    except LargeBatch:
        batch, header = yield partial(partition.log.validator.prepare, batch, header, now_ms)
        validation = Validation.DONE
        now_ms = clock.now_ms()
    return partition.append(batch, header, acks=acks, now_ms=now_ms, validation=validation)


def may_repeat_produce(request: ProduceRequest) -> bool:
    """Whether later requests with other batches need no checks of acks and topics."""
    return request.acks in ACKS and all(
        topic.name not in INTERNAL_TOPICS for topic in request.topic_data
    )


def handle_repeated_produce(
    context: BrokerContext,
    repeated: RepeatedProduce,
    batch: memoryview,
    correlation_id: int,
    connection: Connection,
) -> list[Part] | Coroutine[Any, Any, ProduceResult] | None:
    """Serve a request that equals an earlier one except for its batch: one batch for one partition.

    Raises ApiError or LargeBatch before any change. `handle` then serves the request.
    """
    partition = context.replicas.partitions.get(repeated.key)
    acks = repeated.acks
    if partition is None:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    header = validate_produced(batch, repeated.header[1])
    if header[5] & TRANSACTIONAL:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    topic, index = repeated.key
    try:
        info = partition.append(
            batch,
            header,
            acks=acks,
            now_ms=context.clock.now_ms(),
            validation=Validation.IF_SMALL,
        )
    except StorageError as error:
        # The append has written offsets into the batch, so `handle` cannot validate it again.
        if acks == 0:
            raise CloseConnection(f"produce with acks=0 failed: {error}") from error
        failed = build_error_response(context, index, error, partition)
        origin = RequestOrigin(repeated.header.api_version, connection.listener_name)
        return wait_for_acks(context, origin, [topic], [[failed]], [], repeated.timeout_ms)
    if partition.waits_for_flush or (acks == -1 and partition.log.watermark <= info.last_offset):
        waits = find_waits(context, partition, info, acks, 0, 0)
        if waits:
            origin = RequestOrigin(repeated.header.api_version, connection.listener_name)
            responses = [[build_success_response(index, info)]]
            return wait_for_acks(context, origin, [topic], responses, waits, repeated.timeout_ms)
    if acks == 0:
        return None
    return [repeated.encode_response(correlation_id, info[0], info[2], info[3])]


def build_success_response(index: int, info: AppendInfo) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index, 0, info.first_offset, info.log_append_time, info.log_start_offset
    )


def find_waits(
    context: BrokerContext,
    partition: Partition,
    info: AppendInfo,
    acks: int,
    topic: int,
    position: int,
) -> Waits:
    """Return what an appended batch waits for: an fsync, other replicas, or nothing."""
    waits: Waits = []
    if partition.waits_for_flush:
        flushed = context.replicas.flush(partition)
        if acks != 0:
            waits.append((topic, position, asyncio.shield(flushed)))
    if acks == -1 and partition.log.high_watermark <= info.last_offset:
        waits.append((topic, position, partition.promise(info.last_offset + 1)))
    return waits


def build_result(
    context: BrokerContext,
    origin: RequestOrigin,
    names: list[str],
    topics: list[list[PartitionProduceResponse]],
) -> ProduceResult:
    leaders = []
    if origin.version >= CURRENT_LEADER_SINCE:
        for name, responses in zip(names, topics, strict=True):
            for position, response in enumerate(responses):
                if response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    leader = find_leader(context, name, response.index)
                    leaders.append(leader)
                    responses[position] = response._replace(current_leader=leader)
    return ProduceResult(
        tuple(
            TopicProduceResponse(name, tuple(responses))
            for name, responses in zip(names, topics, strict=True)
        ),
        find_endpoints(context, leaders, origin.listener) if leaders else (),
        origin.throttle_time_ms,
    )


async def wait_for_acks(
    context: BrokerContext,
    origin: RequestOrigin,
    names: list[str],
    topics: list[list[PartitionProduceResponse]],
    waits: Waits,
    timeout_ms: int,
) -> ProduceResult:
    """Wait for the fsyncs and replicas. Appended batches stay in the log even if this fails."""
    deadline = asyncio.get_running_loop().time() + max(timeout_ms, 0) / 1000
    try:
        for topic, position, wait in waits:
            code, message = ErrorCode.NONE, ""
            try:
                async with asyncio.timeout_at(deadline):
                    await wait
            except TimeoutError:
                code = ErrorCode.REQUEST_TIMED_OUT
            except ApiError as error:
                code, message = error.code, error.message
            if code is not ErrorCode.NONE:
                appended = topics[topic][position]
                topics[topic][position] = appended._replace(
                    error_code=code, error_message=message or None
                )
    finally:
        cancel_waits(waits)
    return build_result(context, origin, names, topics)


def cancel_waits(waits: Waits) -> None:
    """Cancel the unfinished waits, and mark the exceptions of the finished ones as retrieved."""
    for *_, wait in waits:
        if not wait.cancel() and not wait.cancelled():
            wait.exception()


def build_error_response(
    context: BrokerContext, index: int, error: ApiError | StorageError, partition: Partition | None
) -> PartitionProduceResponse:
    if isinstance(error, StorageError):
        if partition is not None:
            context.replicas.fail(partition, error)
        error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    log_start = -1
    has_log_start = error.code not in WITHOUT_LOG_START and not isinstance(error, BadRequest)
    if partition is not None and has_log_start:
        log_start = partition.log.log_start_offset
    return PartitionProduceResponse(
        index,
        error.code,
        log_start_offset=log_start,
        record_errors=tuple(
            BatchIndexAndErrorMessage(batch_index, error.message)
            for batch_index in error.record_indexes
        ),
        error_message=error.message or None,
    )


def summarize_errors(request: ProduceRequest, topics: list[list[PartitionProduceResponse]]) -> str:
    return ", ".join(
        f"{topic.name}-{response.index}: {ErrorCode(response.error_code).name}"
        for topic, responses in zip(request.topic_data, topics, strict=True)
        for response in responses
        if response.error_code
    )
