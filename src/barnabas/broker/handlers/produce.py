"""Produce: append a batch to each partition named, answer when as many replicas hold it as `acks` asks for.

    acks  0   no answer; an error closes the connection, so that the client looks at its metadata again
    acks  1   answered when the leader has it
    acks -1   answered when every in-sync replica has it

Where a topic's flush settings want the batch on the disk first, both wait for that, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import Any, NamedTuple

from barnabas.broker.bounded_work import Work, call_in_thread_if_large
from barnabas.broker.connection import CloseConnection, Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.control_plane import may_produce_to
from barnabas.broker.handlers.current_leader import endpoints_of, leader_of
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.metadata.cache import INTERNAL_TOPICS
from barnabas.model import NO_TIMESTAMP
from barnabas.replication.partition import Partition
from barnabas.storage.acceptance import LargeBatch, Validation
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
from barnabas.wire.records import (
    TRANSACTIONAL,
    BadRequest,
    first_whole_batch,
    holds_nothing_whole,
    validate_produced,
)
from barnabas.world.ports import Clock, Part

# These say nothing about the log, so the response does not tell where it starts.
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
ONE_BATCH_SINCE = 3  # before, what came only in part counted as not sent, and that was no error
LEADER_TOLD_SINCE = 10
Waits = list[tuple[int, int, asyncio.Future[None]]]  # (topic, partition) by position in the answer


class ProduceAnswer(NamedTuple):
    topics: tuple[TopicProduceResponse, ...]
    node_endpoints: tuple[NodeEndpoint, ...] = ()


class Asker(NamedTuple):
    """The version of a request and the listener it came through."""

    version: int
    listener: str


def handle(
    context: BrokerContext, request: ProduceRequest, header: RequestHeader, connection: Connection
) -> Work[ProduceAnswer | Awaitable[ProduceAnswer] | None]:
    acks = request.acks
    version = header.api_version
    require_records(request)
    waits: Waits = []
    topics: list[list[PartitionProduceResponse]] = []
    try:
        failed = yield from append_all(context, request, header, connection, waits, topics)
    except GeneratorExit:
        forget_waits(waits)
        raise
    names = [topic.name for topic in request.topic_data]
    asker = Asker(version, connection.listener_name)
    if acks == 0:
        if failed:
            raise CloseConnection(f"produce with acks=0 failed: {summary(request, topics)}")
        return None
    if waits:
        return finish(context, asker, names, topics, waits, request.timeout_ms)
    return (
        yield from call_in_thread_if_large(
            len(topics), partial(response, context, asker, names, topics)
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
    """Append every batch of a request, filling `waits` and `topics`. Returns whether one of them failed."""
    partitions = context.replicas.partitions
    failed = False
    for name, data in request.topic_data:
        answers: list[PartitionProduceResponse] = []
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
                answers.append(refusal(context, index, error, partition))
            else:
                waits += waits_of(context, partition, info, request.acks, len(topics), len(answers))
                answers.append(accepted(index, info))
            yield None
        topics.append(answers)
    return failed


def require_records(request: ProduceRequest) -> None:
    """Close the connection of a request without records: Kafka never answers one, and the client would wait."""
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
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}; it is -1, 0 or 1")
    if not is_allowed:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is written by brokers only"
        )
    batch = first_whole_batch(memoryview(records or b""))
    if version < ONE_BATCH_SINCE and holds_nothing_whole(batch):
        return AppendInfo(-1, -1, NO_TIMESTAMP, partition.log.log_start_offset)
    header = validate_produced(batch, version)
    if header.is_transactional and request.transactional_id is None:
        raise BadRequest(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transaction without its id"
        )
    now_ms = clock.now_ms()
    validation = Validation.IF_SMALL
    try:
        return partition.append(batch, header, acks=acks, now_ms=now_ms, validation=validation)
    except LargeBatch:
        batch, header = yield partial(partition.prepare, batch, header, now_ms)
        validation = Validation.DONE
        now_ms = clock.now_ms()
    return partition.append(batch, header, acks=acks, now_ms=now_ms, validation=validation)


def may_be_repeated(request: ProduceRequest) -> bool:
    """Neither it nor one like it is refused for what it asks, whatever it carries."""
    return request.acks in ACKS and all(
        topic.name not in INTERNAL_TOPICS for topic in request.topic_data
    )


def handle_repeated(
    context: BrokerContext,
    repeated: RepeatedProduce,
    batch: memoryview,
    correlation_id: int,
    connection: Connection,
) -> list[Part] | Coroutine[Any, Any, ProduceAnswer] | None:
    """The same for a request whose shape is known from an earlier one: one batch for one partition.

    Raises ApiError or LargeBatch, with nothing done: `handle` then serves the request.
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
        # The batch was stamped already, so it cannot go through `handle` again.
        if acks == 0:
            raise CloseConnection(f"produce with acks=0 failed: {error}") from error
        refused = refusal(context, index, error, partition)
        asker = Asker(repeated.header.api_version, connection.listener_name)
        return finish(context, asker, [topic], [[refused]], [], repeated.timeout_ms)
    if partition.is_held or (acks == -1 and partition.log.watermark <= info.last_offset):
        waits = waits_of(context, partition, info, acks, 0, 0)
        if waits:
            asker = Asker(repeated.header.api_version, connection.listener_name)
            answers = [[accepted(index, info)]]
            return finish(context, asker, [topic], answers, waits, repeated.timeout_ms)
    if acks == 0:
        return None
    return [repeated.encode_answer(correlation_id, info[0], info[2], info[3])]


def accepted(index: int, info: AppendInfo) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index, 0, info.first_offset, info.log_append_time, info.log_start_offset
    )


def waits_of(
    context: BrokerContext,
    partition: Partition,
    info: AppendInfo,
    acks: int,
    topic: int,
    position: int,
) -> Waits:
    """What an appended batch still waits for: the disk, the other replicas, or neither."""
    waits: Waits = []
    if partition.is_held:
        flushed = context.replicas.flush(partition)
        if acks != 0:
            waits.append((topic, position, asyncio.shield(flushed)))
    if acks == -1 and partition.log.high_watermark <= info.last_offset:
        waits.append((topic, position, partition.promise(info.last_offset + 1)))
    return waits


def response(
    context: BrokerContext,
    asker: Asker,
    names: list[str],
    topics: list[list[PartitionProduceResponse]],
) -> ProduceAnswer:
    leaders = []
    if asker.version >= LEADER_TOLD_SINCE:
        for name, answers in zip(names, topics, strict=True):
            for position, answer in enumerate(answers):
                if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    leader = leader_of(context, name, answer.index)
                    leaders.append(leader)
                    answers[position] = answer._replace(current_leader=leader)
    return ProduceAnswer(
        tuple(
            TopicProduceResponse(name, tuple(answers))
            for name, answers in zip(names, topics, strict=True)
        ),
        endpoints_of(context, leaders, asker.listener) if leaders else (),
    )


async def finish(
    context: BrokerContext,
    asker: Asker,
    names: list[str],
    topics: list[list[PartitionProduceResponse]],
    waits: Waits,
    timeout_ms: int,
) -> ProduceAnswer:
    """Wait until the batches are where `acks` wants them. What was appended stays, whatever the answer."""
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
        forget_waits(waits)
    return response(context, asker, names, topics)


def forget_waits(waits: Waits) -> None:
    """Cancel what is not waited for any longer, also because the client disconnected."""
    for *_, wait in waits:
        if not wait.cancel() and not wait.cancelled():
            wait.exception()


def refusal(
    context: BrokerContext, index: int, error: ApiError | StorageError, partition: Partition | None
) -> PartitionProduceResponse:
    if isinstance(error, StorageError):
        if partition is not None:
            context.replicas.fail(partition, error)
        error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    log_start = -1
    is_about_the_log = error.code not in WITHOUT_LOG_START and not isinstance(error, BadRequest)
    if partition is not None and is_about_the_log:
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


def summary(request: ProduceRequest, topics: list[list[PartitionProduceResponse]]) -> str:
    return ", ".join(
        f"{topic.name}-{answer.index}: {ErrorCode(answer.error_code).name}"
        for topic, answers in zip(request.topic_data, topics, strict=True)
        for answer in answers
        if answer.error_code
    )
