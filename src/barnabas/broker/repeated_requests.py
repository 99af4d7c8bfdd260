"""Produce and Fetch requests that equal an earlier one of their connection, except for the batch or the offsets.

They are served without decoding them. `serve_repeated` returns None, before anything has changed, if a request does
not repeat another one, must wait for data, or may need an error response. The router then serves it like any request.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from barnabas.batch.validation import LargeBatch
from barnabas.broker.connection import CloseConnection, Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.produce_appends import ACKS, Produce
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.metadata.cache import INTERNAL_TOPICS
from barnabas.model import ZERO_ID
from barnabas.replication.partition import TopicTraffic
from barnabas.security.acl.model import Operation
from barnabas.storage import read_committed
from barnabas.wire.fast.repeated_fetch import PartitionFetchResult, RepeatedFetch
from barnabas.wire.fast.repeated_produce import RepeatedProduce
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.produce import ProduceRequest
from barnabas.world.ports import Part

CORRELATION_ID: Final = Struct(">i")
PRODUCE: Final = 0
FETCH: Final = 1


def serve_repeated(
    context: BrokerContext, frame: memoryview, connection: Connection
) -> list[Part] | Produce | None:
    """Return the response (empty with acks=0), a request that waits for replicas or an fsync, or None.

    Nothing is counted for quotas: requests of clients with a quota are never learned.
    """
    produce = connection.produces.find(frame)
    if produce is not None:
        batch = connection.produces.batch(frame, produce.is_flexible)
        if batch is not None:
            connection.api = PRODUCE
            correlation_id: int = CORRELATION_ID.unpack_from(frame, 4)[0]
            try:
                return handle_repeated_produce(context, produce, batch, correlation_id, connection)
            except (ApiError, LargeBatch):
                return None
    fetch = connection.fetches.find(frame)
    if fetch is None:
        return None
    connection.api = FETCH
    return handle_repeated_fetch(context, fetch, frame, connection)


def learn_request(
    frame: memoryview, at: int, header: RequestHeader, request: Any, connection: Connection
) -> None:
    """Remember a Produce or Fetch request, so that later ones like it take the fast path."""
    if header.api_key == FETCH:
        if connection.fetches.find(frame) is None:
            connection.fetches.learn(frame, at, header, request)
    elif may_repeat_produce(request):
        connection.produces.learn(frame, header, request)


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
) -> list[Part] | Produce:
    """Serve a request that equals an earlier one except for its batch: one batch for one partition.

    Returns the response, or the request if it waits for replicas or an fsync, or if its batch could not be written.
    Raises ApiError or LargeBatch before any change.
    """
    partition = context.replicas.partitions.get(repeated.key)
    acks = repeated.acks
    if partition is None:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    access = context.security.access
    if access.decider is not None and not access.allows_topic(
        connection, Operation.WRITE, repeated.key[0], is_audited=False
    ):
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    now_ms = context.clock.now_ms()
    batch, header = partition.log.validator.validate(
        batch, now_ms, produce_version=repeated.header.api_version, if_small=True
    )
    if header.is_transactional:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    try:
        info = partition.append(batch, header, acks=acks, now_ms=now_ms)
    except ApiError:
        partition.traffic.produces -= 1  # the caller tries it again
        raise
    except StorageError as error:
        # The append has written offsets into the batch, so `handle` cannot validate it again.
        if acks == 0:
            raise CloseConnection(f"produce with acks=0 failed: {error}") from error
        failed = Produce(context, repeated.request, repeated.header, connection)
        failed.topics.append([])
        failed.add_error(repeated.key[1], error, partition)
        return failed
    if partition.waits_for_flush or (acks == -1 and partition.log.watermark <= info.last_offset):
        produce = Produce(context, repeated.request, repeated.header, connection)
        produce.topics.append([])
        produce.add_success(repeated.key[1], info, partition)
        if produce.waits:
            return produce
    if acks == 0:
        return []
    return [
        repeated.encode_response(
            correlation_id, info.first_offset, info.log_append_time, info.log_start_offset
        )
    ]


def handle_repeated_fetch(
    context: BrokerContext, repeated: RepeatedFetch, frame: memoryview, connection: Connection
) -> list[Part] | None:
    """Return the response of a request that equals an earlier one except for its offsets, or None if it must wait or
    has an error."""
    replicas, names = context.replicas.partitions, context.metadata.names
    bytes_max = min(repeated.max_bytes, context.config.fetch_max_bytes)
    bytes_left = bytes_max
    results: list[PartitionFetchResult] = []
    traffics: list[TopicTraffic] = []
    name, id_of_name = "", ZERO_ID
    access = context.security.access
    try:
        for wanted, offset in zip(repeated.partitions, repeated.offsets(frame), strict=True):
            topic_id = wanted.topic_id
            if topic_id is not id_of_name:
                id_of_name, name = topic_id, names.get(topic_id, "")
            partition = replicas.get((wanted.topic or name, wanted.index))
            if partition is None or (partition.topic_id != topic_id and not wanted.topic):
                return None
            if access.decider is not None and not access.allows_topic(
                connection, Operation.READ, wanted.topic or name, is_audited=False
            ):
                return None
            partition.require_replica(wanted.current_leader_epoch)
            traffics.append(partition.traffic)
            log = partition.log
            high_watermark, stable = log.watermark, log.last_stable_offset
            start = log.log_start_offset
            bound = stable if repeated.reads_committed else high_watermark
            if offset == bound:
                results.append(PartitionFetchResult(high_watermark, stable, start, (), 0))
                continue
            found = log.read(
                offset, min(wanted.max_bytes, bytes_left), bound, bytes_left == bytes_max
            )
            if found.first_incomplete or found.unchecked_segment is not None:
                return None
            if repeated.reads_committed and read_committed.aborted_in_read(log, offset, found):
                return None
            bytes_left = max(bytes_left - found.size, 0)
            results.append(
                PartitionFetchResult(high_watermark, stable, start, found.slices, found.size)
            )
    except (ApiError, StorageError):
        return None
    if bytes_max - bytes_left < min(repeated.min_bytes, bytes_max):
        return None
    for traffic, result in zip(traffics, results, strict=True):
        traffic.fetches += 1
        traffic.bytes_out += result.size
    return repeated.encode_response(frame, results)
