"""WriteTxnMarkers: appends transaction markers to partitions that this broker leads.

A marker is written when all in-sync replicas have it. The coordinator repeats the request for each partition with an
error that may pass, so a log may get the same marker twice. The second one changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from barnabas.batch.header import BatchHeader
from barnabas.batch.markers import Marker, build_marker
from barnabas.broker.bounded_work import Work, call_in_thread_if_large
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_events import find_requester
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.model import TopicPartition
from barnabas.security.acl.model import Operation
from barnabas.tasks import in_thread_if_large
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

ACKS_ALL = -1

Codes = dict[int, dict[TopicPartition, ErrorCode]]
"""By producer id. As in Kafka, the markers of one producer share a result."""
Wait = tuple[int, TopicPartition, asyncio.Future[None]]
Appended = tuple[WritableTxnMarker, TopicPartition, int]
"""A marker, its partition and its offset there."""


def handle(
    context: BrokerContext,
    request: WriteTxnMarkersRequest,
    header: RequestHeader,
    connection: Connection,
) -> Work[WriteTxnMarkersResponse | Awaitable[WriteTxnMarkersResponse]]:
    codes: Codes = {}
    waits: list[Wait] = []
    appended: list[Appended] = []
    access = context.security.access
    is_allowed = access.allows_cluster(
        connection, Operation.ALTER, is_audited=False
    ) or access.is_broker(connection)
    try:
        for marker in request.markers:
            results = codes.setdefault(marker.producer_id, {})
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    key = TopicPartition(topic.name, index)
                    try:
                        if not is_allowed:
                            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
                        offset, wait = append_marker(context, marker, key)
                    except ApiError as error:
                        results[key] = error.code
                    else:
                        results[key] = ErrorCode.NONE
                        appended.append((marker, key, offset))
                        record_operator(context, marker, key, header, connection)
                        waits += [(marker.producer_id, key, each) for each in wait]
                    yield None
    except GeneratorExit:
        cancel_markers(waits)
        raise
    if waits:
        return wait_for_markers(context, appended, codes, waits)
    end_group_transactions(context, appended, codes)
    return (yield from call_in_thread_if_large(result_count(codes), build_response, codes))


def append_marker(
    context: BrokerContext, marker: WritableTxnMarker, key: TopicPartition
) -> tuple[int, list[asyncio.Future[None]]]:
    """Append a marker to one partition. Return its offset, and what to wait for. Raises ApiError."""
    partition = context.replicas.partitions.get(key)
    if partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if key.topic == CONSUMER_OFFSETS and key.partition in context.group_store.loading:
        # The coordinator of the groups is not ready. The transaction coordinator retries.
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        why = f"no producer has id {marker.producer_id} and epoch {marker.producer_epoch}"
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, why)
    now_ms = context.clock.now_ms()
    batch = build_marker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        marker=Marker(marker.transaction_result, marker.coordinator_epoch),
        timestamp=now_ms,
    )
    try:
        info = partition.append(memoryview(batch), BatchHeader(batch), acks=ACKS_ALL, now_ms=now_ms)
    except StorageError as error:
        context.replicas.fail(partition, error)
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
    waits = []
    if partition.waits_for_flush:
        waits.append(asyncio.shield(context.replicas.flush(partition)))
    if partition.log.watermark <= info.last_offset:
        waits.append(partition.promise(info.last_offset + 1))
    return info.first_offset, waits


def record_operator(
    context: BrokerContext,
    marker: WritableTxnMarker,
    key: TopicPartition,
    header: RequestHeader,
    connection: Connection,
) -> None:
    """Record a marker of an operator in the history. Coordinators use the id of their broker as client id."""
    client_id = header.client_id or ""
    if context.recorder is None or (
        client_id.isdecimal() and int(client_id) in context.metadata.brokers
    ):
        return
    requester = find_requester(header, connection)
    facts = {
        "after": "committed" if marker.transaction_result else "aborted",
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "why": "WriteTxnMarkers",
        "by": requester.name,
        "host": requester.host,
    }
    context.recorder.record_marker(str(key), facts)


async def wait_for_markers(
    context: BrokerContext, appended: list[Appended], codes: Codes, waits: list[Wait]
) -> WriteTxnMarkersResponse:
    """Wait for the replicas, up to request.timeout.ms. Appended markers stay in the logs even if this fails."""
    deadline = asyncio.get_running_loop().time() + context.config.request_timeout_ms / 1000
    try:
        for producer_id, key, wait in waits:
            try:
                async with asyncio.timeout_at(deadline):
                    await wait
            except TimeoutError:
                codes[producer_id][key] = ErrorCode.REQUEST_TIMED_OUT
            except ApiError as error:
                codes[producer_id][key] = error.code
    finally:
        cancel_markers(waits)
    end_group_transactions(context, appended, codes)
    return await in_thread_if_large(result_count(codes), build_response, codes)


def end_group_transactions(context: BrokerContext, appended: list[Appended], codes: Codes) -> None:
    """Apply or discard the offsets that groups have committed in these transactions.

    While this request waited for replicas, the same marker may have been written again, and a new transaction may have
    begun. The marker does not end that one: its offsets are later in the log.
    """
    for marker, key, offset in appended:
        if key.topic == CONSUMER_OFFSETS and codes[marker.producer_id][key] is ErrorCode.NONE:
            context.groups.transactional.end(
                key.partition,
                marker.producer_id,
                is_committed=marker.transaction_result,
                marker_offset=offset,
            )


def cancel_markers(waits: list[Wait]) -> None:
    for *_, wait in waits:
        if not wait.cancel() and not wait.cancelled():
            wait.exception()


def result_count(codes: Codes) -> int:
    return sum(map(len, codes.values()))


def build_response(codes: Codes) -> WriteTxnMarkersResponse:
    markers = []
    for producer_id, results in codes.items():
        if not results:
            continue
        topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
        for key, code in results.items():
            found = WritableTxnMarkerPartitionResult(key.partition, code)
            topics.setdefault(key.topic, []).append(found)
        markers.append(
            WritableTxnMarkerResult(
                producer_id,
                tuple(
                    WritableTxnMarkerTopicResult(name, tuple(found))
                    for name, found in topics.items()
                ),
            )
        )
    return WriteTxnMarkersResponse(markers=tuple(markers))
