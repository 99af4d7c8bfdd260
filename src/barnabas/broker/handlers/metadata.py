"""Metadata: the topics a client asks for and the brokers it can reach; unknown ones may be created on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from functools import partial
from typing import NamedTuple

from barnabas.broker.bounded_work import Work, call_in_thread_if_large
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.auto_creation import create_automatically
from barnabas.broker.topic_events import requester_of
from barnabas.errors import ErrorCode
from barnabas.history.requester import Requester
from barnabas.metadata.cache import INTERNAL_TOPICS
from barnabas.metadata.topic_names import topic_name_error
from barnabas.model import ZERO_ID
from barnabas.tasks import SMALL_MAX
from barnabas.wire.fast import encode_metadata_response, encode_metadata_topic
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.metadata import (
    CLUSTER_OPERATIONS,
    NO_OPERATIONS,
    TOPIC_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

TOPICS_PER_TURN = 500
CREATED_AT_ONCE_MAX = 100
LIBRDKAFKA = ("librdkafka", "confluent-kafka")  # by itself, and in the libraries around it
BY_ID_SINCE = 12  # versions 10 and 11 have the field, but may not use it


class Asked(NamedTuple):
    """How the answer is to be given."""

    version: int
    listener: str
    cluster_operations: bool
    topic_operations: bool
    is_librdkafka: bool


def handle(
    context: BrokerContext, request: MetadataRequest, header: RequestHeader, connection: Connection
) -> Work[bytes | Awaitable[bytes]]:
    """The encoded response: most of it is kept ready by the metadata cache."""
    version = header.api_version
    asked = Asked(
        version,
        connection.listener_name,
        request.include_cluster_authorized_operations,
        request.include_topic_authorized_operations,
        connection.client_software[0].startswith(LIBRDKAFKA),
    )
    cache = context.metadata
    topics = request.topics
    if topics is None or (version == 0 and not topics):
        topics = tuple(MetadataRequestTopic(name=name) for name in sorted(cache.topics))
        may_create = False
    else:
        may_create = request.allow_auto_topic_creation and context.config.auto_create_topics_enable
    wanted = yield from call_in_thread_if_large(len(topics), partial(valid_topics, topics, version))
    if wanted is None:
        return (yield from call_in_thread_if_large(len(topics), partial(refuse, topics, version)))
    topics = wanted
    if may_create and any(is_unknown(context, topic) for topic in topics):
        requester = requester_of(header, connection)._replace(via=context.config.broker_id)
        return create_missing(context, topics, asked, requester)
    if cache.suspects:
        return encode_later(context, topics, asked)
    if len(topics) > TOPICS_PER_TURN or any(is_large(context, topic) for topic in topics):
        return encode_slowly(context, topics, {}, asked)
    return respond(context, encode_topics(context, topics, {}, asked), asked)


def valid_topics(
    topics: tuple[MetadataRequestTopic, ...], version: int
) -> tuple[MetadataRequestTopic, ...] | None:
    """The requested topics, each once; None if the whole request is invalid."""
    if version < BY_ID_SINCE and any(t.name is None or t.topic_id != ZERO_ID for t in topics):
        return None
    wanted = distinct_topics(topics)
    if any(topic.name is None and topic.topic_id == ZERO_ID for topic in wanted):
        return None
    return wanted


def distinct_topics(topics: Iterable[MetadataRequestTopic]) -> tuple[MetadataRequestTopic, ...]:
    """Return each requested topic once, with its name or its id.

    If any topic id is given, Kafka looks at the ids alone. The Java client sends an empty name along with each id.
    """
    by_id = {topic.topic_id: None for topic in topics if topic.topic_id != ZERO_ID}
    if by_id:
        return tuple(MetadataRequestTopic(topic_id=topic_id) for topic_id in by_id)
    return tuple(dict.fromkeys(topics))


def refuse(topics: tuple[MetadataRequestTopic, ...], version: int) -> bytes:
    """Reject the whole request: the answer names no brokers and repeats the topics as they came."""
    refused = [
        MetadataResponseTopic(
            name=topic.name or "", topic_id=topic.topic_id, error_code=ErrorCode.INVALID_REQUEST
        )
        for topic in topics
    ]
    return encode_metadata_response(
        version,
        brokers=(),
        cluster_id=None,
        controller_id=-1,
        topic_blobs=[encode_metadata_topic(version, topic) for topic in refused],
    )


def is_unknown(context: BrokerContext, topic: MetadataRequestTopic) -> bool:
    """By its name: asking for an id creates nothing."""
    return topic.name is not None and topic.name not in context.metadata.topics


def name_of(context: BrokerContext, topic: MetadataRequestTopic) -> str | None:
    """Return the name of a topic that was requested by name or by id, or None for an unknown id."""
    return topic.name if topic.name is not None else context.metadata.names.get(topic.topic_id)


def is_large(context: BrokerContext, topic: MetadataRequestTopic) -> bool:
    found = context.metadata.topics.get(name_of(context, topic) or "")
    return found is not None and len(found.partitions) > SMALL_MAX


async def create_missing(
    context: BrokerContext,
    topics: tuple[MetadataRequestTopic, ...],
    asked: Asked,
    requester: Requester,
) -> bytes:
    """Start creating the unknown topics. The client asks again: LEADER_NOT_AVAILABLE tells it that it is worth it."""
    unknown = [topic.name for topic in topics if topic.name and is_unknown(context, topic)]
    # The rest stays unknown; the client asks again anyway.
    errors = await create_automatically(context, unknown[:CREATED_AT_ONCE_MAX], requester)
    return await encode_slowly(context, topics, errors, asked)


async def encode_later(
    context: BrokerContext, topics: tuple[MetadataRequestTopic, ...], asked: Asked
) -> bytes:
    """When it is clear whether a leader is gone."""
    await context.metadata.wait_for_suspect_leaders(
        name_of(context, topic) or "" for topic in topics
    )
    return await encode_slowly(context, topics, {}, asked)


async def encode_slowly(
    context: BrokerContext,
    topics: tuple[MetadataRequestTopic, ...],
    errors: dict[str, ErrorCode],
    asked: Asked,
) -> bytes:
    """With turns for others in between."""
    encoded: list[bytes] = []
    for topic in topics:
        name = name_of(context, topic)
        if name is not None and is_large(context, topic) and not asked.topic_operations:
            await context.metadata.encode_ahead(
                name, asked.version, encode_metadata_topic, asked.listener
            )
    for start in range(0, len(topics), TOPICS_PER_TURN):
        encoded += encode_topics(context, topics[start : start + TOPICS_PER_TURN], errors, asked)
        await asyncio.sleep(0)
    return respond(context, encoded, asked)


def encode_topics(
    context: BrokerContext,
    topics: tuple[MetadataRequestTopic, ...],
    errors: dict[str, ErrorCode],
    asked: Asked,
) -> list[bytes]:
    cache = context.metadata
    version = asked.version
    encoded = []
    for topic in topics:
        name = name_of(context, topic)
        if name is None or name not in cache.topics or name in errors:
            encoded.append(encode_metadata_topic(version, missing(topic, errors, asked)))
        elif asked.topic_operations:
            found = cache.describe(name, version, asked.listener)
            allowed = found._replace(topic_authorized_operations=TOPIC_OPERATIONS)
            encoded.append(encode_metadata_topic(version, allowed))
        else:
            encoded.append(
                cache.encoded_topic(name, version, encode_metadata_topic, asked.listener)
            )
    return encoded


def respond(context: BrokerContext, encoded: list[bytes], asked: Asked) -> bytes:
    cache = context.metadata
    brokers = []
    listed = cache.brokers_and_departed() if asked.is_librdkafka else cache.brokers.values()
    for broker in listed:
        endpoint = cache.endpoint(broker, asked.listener)
        if endpoint is not None:
            brokers.append(
                MetadataResponseBroker(
                    node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
            )
    return encode_metadata_response(
        asked.version,
        brokers=tuple(brokers),
        cluster_id=cache.cluster_id,
        controller_id=cache.controller_id,
        topic_blobs=encoded,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if asked.cluster_operations
        else NO_OPERATIONS,
    )


def missing(
    topic: MetadataRequestTopic, errors: dict[str, ErrorCode], asked: Asked
) -> MetadataResponseTopic:
    if topic.name is None:
        return MetadataResponseTopic(
            name=None, topic_id=topic.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID
        )
    code = errors.get(topic.name)
    if code is None:
        is_legal = topic_name_error(topic.name) is None
        code = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
        )
    return MetadataResponseTopic(
        name=topic.name,
        error_code=code,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS if asked.topic_operations else NO_OPERATIONS,
    )
