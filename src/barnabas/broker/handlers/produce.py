"""Produce: appends a batch to each partition, and responds when enough replicas have it.

    acks  0   no response; an error closes the connection, so that the client refreshes its metadata
    acks  1   response when the leader has the batch
    acks -1   response when every in-sync replica has the batch

If the flush settings of a topic require it, acks 1 and -1 also wait for an fsync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial

from barnabas.batch.validation import LargeBatch, drop_partial_batch
from barnabas.broker.bounded_work import Work, call_in_thread_if_large
from barnabas.broker.connection import CloseConnection, Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.produce_appends import Produce, ProduceResult, Waits
from barnabas.broker.transaction_verification import (
    Verified,
    begin_verifications,
    has_transactional_batch,
)
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.model import TopicPartition
from barnabas.storage.producers import OPEN
from barnabas.wire.codec import Records
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.produce import ProduceRequest

Response = ProduceResult | Awaitable[ProduceResult | None] | None
"""An awaitable if batches wait for replicas or an fsync. None with acks=0."""


def handle(
    context: BrokerContext, request: ProduceRequest, header: RequestHeader, connection: Connection
) -> Response | Work[Response]:
    """Serve a request with one batch at once, as most are, and others in turns."""
    require_records(request)
    produce = Produce(context, request, header, connection)
    if context.security.access.decider is not None and is_denied_transaction(produce):
        return reject_all(produce, ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if request.transactional_id is not None and needs_verification(context):
        return append_verified(produce)
    if len(request.topic_data) == 1 and len(request.topic_data[0].partition_data) == 1:
        name, data = request.topic_data[0]
        index, records = data[0]
        try:
            produce.topics.append([])
            produce.append(name, index, records)
        except LargeBatch:
            produce.topics.clear()
        else:
            produce.charge_quota()
            return wait_for_acks(produce) if produce.waits else produce.respond()
    return append_in_turns(produce)


def require_records(request: ProduceRequest) -> None:
    """Raise CloseConnection if a partition has null records. Kafka sends no response then, and the client waits."""
    for name, data in request.topic_data:
        for index, records in data:
            if records is None:
                raise CloseConnection(f"produce without records for {name}-{index}")


def is_denied_transaction(produce: Produce) -> bool:
    """Whether the request has a transactional batch, and the principal may not use its transactional id."""
    return has_transactional_batch(produce.request) and not produce.may_use_transactional_id()


def needs_verification(context: BrokerContext) -> bool:
    return context.verifier is not None and context.config.transaction_partition_verification_enable


def append_verified(produce: Produce) -> Work[Response]:
    """Append batches of a transaction, after its coordinator has confirmed the partitions that are new in it.

    Later requests of the connection wait meanwhile, since their batches must not overtake these.
    """
    context, request = produce.context, produce.request
    verifier, transactional_id = context.verifier, request.transactional_id
    assert verifier is not None and transactional_id is not None
    try:
        producer, verifications = begin_verifications(context.replicas, request)
    except ApiError as error:
        return (yield from reject_all(produce, error))
    unverified = [key for key, found in verifications.items() if found is not OPEN]
    codes: dict[TopicPartition, ErrorCode] = {}
    if producer is not None and unverified:
        codes = yield verifier.verify(transactional_id, *producer, unverified)
    produce.verified = Verified(verifications, codes)
    return (yield from append_in_turns(produce))


def reject_all(produce: Produce, error: ApiError) -> Work[Response]:
    for _, data in produce.request.topic_data:
        produce.topics.append([])
        for index, _ in data:
            produce.add_error(index, error, None)
            yield None
    return produce.respond()


def append_in_turns(produce: Produce) -> Work[Response]:
    """Append every batch, the large ones after a validation in a thread."""
    try:
        for name, data in produce.request.topic_data:
            produce.topics.append([])
            for index, records in data:
                try:
                    produce.append(name, index, records)
                except LargeBatch:
                    yield from append_large(produce, name, index, records)
                yield None
    except GeneratorExit:
        cancel_waits(produce.waits)
        raise
    produce.charge_quota()
    if produce.waits:
        return wait_for_acks(produce)
    return (yield from call_in_thread_if_large(len(produce.topics), produce.respond))


def append_large(produce: Produce, name: str, index: int, records: Records | None) -> Work[None]:
    partition = produce.context.replicas.partitions[name, index]
    clock = produce.context.clock
    validate = partial(partition.log.validator.validate, produce_version=produce.version)
    try:
        batch = drop_partial_batch(memoryview(records or b""))
        batch, header = yield partial(validate, batch, clock.now_ms())
        info = produce.append_valid(partition, batch, header, clock.now_ms())
    except (ApiError, StorageError) as error:
        produce.add_error(index, error, partition)
    else:
        produce.add_success(index, info, partition)


async def wait_for_acks(produce: Produce) -> ProduceResult | None:
    """Wait for the fsyncs and replicas. Appended batches stay in the log even if this fails."""
    timeout_ms = max(produce.request.timeout_ms, 0)
    deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
    try:
        for topic, position, wait in produce.waits:
            try:
                async with asyncio.timeout_at(deadline):
                    await wait
            except TimeoutError:
                produce.fail_response(topic, position, ErrorCode.REQUEST_TIMED_OUT)
            except ApiError as error:
                produce.fail_response(topic, position, error.code, error.message)
    finally:
        cancel_waits(produce.waits)
    return produce.respond()


def cancel_waits(waits: Waits) -> None:
    """Cancel the unfinished waits, and mark the exceptions of the finished ones as retrieved."""
    for *_, wait in waits:
        if not wait.cancel() and not wait.cancelled():
            wait.exception()
