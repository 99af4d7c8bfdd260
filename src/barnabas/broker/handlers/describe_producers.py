"""DescribeProducers: the idempotent producers of partitions that this broker has a replica of."""

from __future__ import annotations

from barnabas.broker.bounded_work import Work
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ApiError, ErrorCode
from barnabas.metadata.topic_names import topic_name_error
from barnabas.security.acl.model import Operation
from barnabas.storage.producers import NO_SEQUENCE, ProducerState
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.describe_producers import (
    DescribedProducer,
    DescribeProducersPartitionResult,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
)


def handle(
    context: BrokerContext,
    request: DescribeProducersRequest,
    _: RequestHeader,
    connection: Connection,
) -> Work[DescribeProducersResponse]:
    # A request may name a partition many times. All its results share one tuple of producers.
    described: dict[tuple[str, int], DescribeProducersPartitionResult] = {}
    topics = []
    for topic in request.topics:
        error = find_topic_error(context, topic.name, connection)
        results = []
        for index in topic.partition_indexes:
            if error is not None:
                results.append(DescribeProducersPartitionResult(index, error.code, error.message))
                yield None
                continue
            key = topic.name, index
            if key not in described:
                described[key] = yield from describe_partition_producers(context, *key)
            results.append(described[key])
            yield None
        topics.append(DescribeProducersTopicResult(topic.name, tuple(results)))
        yield None
    return DescribeProducersResponse(topics=tuple(topics))


def find_topic_error(context: BrokerContext, name: str, connection: Connection) -> ApiError | None:
    why = topic_name_error(name)
    if why is not None:
        return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    if not context.security.access.allows_topic(connection, Operation.READ, name):
        return ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if name not in context.metadata.topics:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
    return None


def describe_partition_producers(
    context: BrokerContext, topic: str, index: int
) -> Work[DescribeProducersPartitionResult]:
    """Describe the producers of one replica. As in Kafka, it need not be the leader."""
    try:
        partition = context.replicas.find(topic, index)
        if partition.is_offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
    except ApiError as error:
        return DescribeProducersPartitionResult(index, error.code)
    producers = []
    # A copy, since producers come and go between two turns.
    for producer_id, state in tuple(partition.log.producers.by_id.items()):
        producers.append(describe_producer(producer_id, state))
        yield None
    return DescribeProducersPartitionResult(index, active_producers=tuple(producers))


def describe_producer(producer_id: int, state: ProducerState) -> DescribedProducer:
    return DescribedProducer(
        producer_id=producer_id,
        producer_epoch=state.epoch,
        last_sequence=state.batches[-1].last_sequence if state.batches else NO_SEQUENCE,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=state.transaction_first_offset,
    )
