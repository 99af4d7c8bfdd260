"""DescribeTopicPartitions: the partitions of topics in name order, at most max.request.partition.size.limit at a time.

Kafka serves it in KRaft mode only. Tools of Kafka 4 prefer it to Metadata, since its responses are bounded.
"""

from __future__ import annotations

from barnabas.broker.bounded_work import Work, call_in_thread_if_large
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.errors import ErrorCode
from barnabas.metadata.cache import INTERNAL_TOPICS, MetadataCache, TopicMetadata
from barnabas.metadata.topic_names import topic_name_error
from barnabas.model import NO_LEADER
from barnabas.security.acl.model import Operation, ResourceType
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicCursor,
)

Response = DescribeTopicPartitionsResponse
ResponseTopic = DescribeTopicPartitionsResponseTopic
FIRST = TopicCursor("", 0)


def handle(
    context: BrokerContext,
    request: DescribeTopicPartitionsRequest,
    _: RequestHeader,
    connection: Connection,
) -> Work[Response]:
    cache = context.metadata
    all_names = () if request.topics else tuple(cache.topics)
    size = len(request.topics) or len(all_names)
    names = yield from call_in_thread_if_large(size, select_names, request, all_names)
    if names is None:
        return (yield from call_in_thread_if_large(size, reject_cursor, request))
    cursor = request.cursor or FIRST
    limit = context.config.max_request_partition_size_limit
    remaining = max(min(limit, request.response_partition_limit), 1)
    topics: list[ResponseTopic] = []
    denied: list[ResponseTopic] = []
    access = context.security.access
    next_cursor = None
    for name in names:
        yield None
        if not access.allows_topic(
            connection, Operation.DESCRIBE, name, is_audited=bool(request.topics)
        ):
            if request.topics:
                denied.append(ResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
            continue
        operations = access.authorized_operations(connection, ResourceType.TOPIC, name)
        if remaining == 0:
            next_cursor = TopicCursor(name, 0)
            break
        topic = cache.topics.get(name)
        if topic is None:
            if request.topics:
                topics.append(build_unknown_topic(name, operations))
            continue
        start = cursor.partition_index if name == cursor.topic_name else 0
        end = min(start + remaining, len(topic.partitions))
        described = describe_page(cache, topic, range(start, end), connection.listener_name)
        topics.append(described._replace(topic_authorized_operations=operations))
        if end < len(topic.partitions):
            next_cursor = TopicCursor(name, end)
            break
        remaining -= len(described.partitions)
    return Response(topics=(*topics, *denied), next_cursor=next_cursor)


def select_names(
    request: DescribeTopicPartitionsRequest, all_names: tuple[str, ...]
) -> list[str] | None:
    """Return the requested names from the cursor on, sorted. None: the cursor is invalid."""
    cursor = request.cursor
    wanted = {topic.name for topic in request.topics} if request.topics else set(all_names)
    if cursor is None:
        return sorted(wanted)
    is_missing = bool(request.topics) and cursor.topic_name not in wanted
    if is_missing or cursor.partition_index < 0:
        return None
    return sorted(name for name in wanted if name >= cursor.topic_name)


def reject_cursor(request: DescribeTopicPartitionsRequest) -> Response:
    """Return INVALID_REQUEST for each requested topic: the response has no error code of its own."""
    return Response(
        topics=tuple(
            ResponseTopic(ErrorCode.INVALID_REQUEST, topic.name) for topic in request.topics
        )
    )


def build_unknown_topic(name: str, operations: int) -> ResponseTopic:
    is_legal = topic_name_error(name) is None
    return ResponseTopic(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=operations,
    )


def describe_page(
    cache: MetadataCache, topic: TopicMetadata, indexes: range, listener: str
) -> ResponseTopic:
    partitions = []
    for index in indexes:
        state = topic.partitions.get(index)
        if state is None:
            continue  # the controller has not announced it yet
        is_reachable = cache.endpoint_of(state.leader, listener) is not None
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE,
                partition_index=index,
                leader_id=state.leader if is_reachable else NO_LEADER,
                leader_epoch=state.leader_epoch,
                replica_nodes=state.replicas,
                isr_nodes=state.isr,
                eligible_leader_replicas=(),
                last_known_elr=(),
                offline_replicas=state.offline_replicas,
            )
        )
    return ResponseTopic(
        ErrorCode.NONE,
        topic.name,
        topic.topic_id,
        topic.name in INTERNAL_TOPICS,
        tuple(partitions),
    )
