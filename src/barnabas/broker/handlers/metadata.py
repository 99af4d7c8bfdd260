"""Metadata: the requested topics and the brokers that the client can reach. May create unknown topics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple

from barnabas.broker.bounded_work import Work, call_in_thread_if_large
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.auto_creation import create_automatically
from barnabas.broker.topic_events import find_requester
from barnabas.errors import ErrorCode
from barnabas.history.requester import Requester
from barnabas.metadata.cache import INTERNAL_TOPICS
from barnabas.metadata.topic_names import topic_name_error
from barnabas.model import ZERO_ID
from barnabas.security.acl.model import Operation, ResourceType
from barnabas.tasks import SMALL_MAX
from barnabas.wire.fast import encode_metadata_response, encode_metadata_topic
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.metadata import (
    NO_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

TOPICS_PER_TURN = 500
CREATED_AT_ONCE_MAX = 100
LIBRDKAFKA = ("librdkafka", "confluent-kafka")  # prefixes of its client software names
BY_ID_SINCE = 12  # versions 10 and 11 have the field, but reject requests that use it


class ResponseOptions(NamedTuple):
    """Options of a response, from the request and its connection."""

    version: int
    listener: str
    cluster_operations: bool
    topic_operations: bool
    is_librdkafka: bool
    connection: Connection


def handle(
    context: BrokerContext, request: MetadataRequest, header: RequestHeader, connection: Connection
) -> Work[bytes | Awaitable[bytes]]:
    """Return the encoded response. The metadata cache keeps most of it encoded."""
    version = header.api_version
    options = ResponseOptions(
        version,
        connection.listener_name,
        request.include_cluster_authorized_operations,
        request.include_topic_authorized_operations,
        connection.client_software[0].startswith(LIBRDKAFKA),
        connection,
    )
    cache = context.metadata
    topics = request.topics
    is_all = topics is None or (version == 0 and not topics)
    if topics is None or is_all:
        topics = tuple(MetadataRequestTopic(name=name) for name in sorted(cache.topics))
        may_create = False
    else:
        may_create = request.allow_auto_topic_creation and context.config.auto_create_topics_enable
    wanted = yield from call_in_thread_if_large(len(topics), valid_topics, topics, version)
    if wanted is None:
        return (yield from call_in_thread_if_large(len(topics), reject_request, topics, version))
    topics = wanted
    errors: dict[str, ErrorCode] = {}
    if context.security.access.is_enabled:
        if is_all:
            topics = yield from select_visible(context, topics, connection)
        else:
            errors = yield from find_denials(context, topics, connection, may_create=may_create)
    if may_create and any(is_creatable(context, topic, errors) for topic in topics):
        requester = find_requester(header, connection)
        return create_unknown_topics(context, topics, errors, options, requester)
    if cache.suspects:
        return respond_when_certain(context, topics, errors, options)
    if len(topics) > topics_per_turn(context, options) or any(
        is_large_topic(context, topic) for topic in topics
    ):
        return respond_in_turns(context, topics, errors, options)
    return build_metadata_response(
        context, encode_topics(context, topics, errors, options), options
    )


def select_visible(
    context: BrokerContext, topics: tuple[MetadataRequestTopic, ...], connection: Connection
) -> Work[tuple[MetadataRequestTopic, ...]]:
    """Return the topics that the principal may describe."""
    access = context.security.access
    visible = []
    for topic in topics:
        if access.allows_topic(connection, Operation.DESCRIBE, topic.name or "", is_audited=False):
            visible.append(topic)
        yield None
    return tuple(visible)


def find_denials(
    context: BrokerContext,
    topics: tuple[MetadataRequestTopic, ...],
    connection: Connection,
    *,
    may_create: bool,
) -> Work[dict[str, ErrorCode]]:
    """Return TOPIC_AUTHORIZATION_FAILED for each topic that the principal may not describe, or may not create.

    The error does not depend on whether the topic exists.
    """
    access = context.security.access
    errors: dict[str, ErrorCode] = {}
    for topic in topics:
        yield None
        name = find_topic_name(context, topic)
        if name is None:
            continue
        is_allowed = access.allows_topic(connection, Operation.DESCRIBE, name)
        if is_allowed and may_create and is_unknown(context, topic):
            is_allowed = access.allows_cluster(
                connection, Operation.CREATE, is_audited=False
            ) or access.allows_topic(connection, Operation.CREATE, name)
        if not is_allowed:
            errors[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return errors


def topics_per_turn(context: BrokerContext, options: ResponseOptions) -> int:
    """With ACLs, the allowed operations of a topic take many decisions."""
    is_slow = options.topic_operations and context.security.access.is_enabled
    return TOPICS_PER_TURN // 10 if is_slow else TOPICS_PER_TURN


def valid_topics(
    topics: tuple[MetadataRequestTopic, ...], version: int
) -> tuple[MetadataRequestTopic, ...] | None:
    """Return the requested topics without duplicates, each with its name or its id. None: the request is invalid.

    If the request has any topic id, Kafka ignores the names. The Java client sends an empty name with each id.
    """
    if version < BY_ID_SINCE and any(t.name is None or t.topic_id != ZERO_ID for t in topics):
        return None
    by_id = {topic.topic_id: None for topic in topics if topic.topic_id != ZERO_ID}
    if by_id:
        return tuple(MetadataRequestTopic(topic_id=topic_id) for topic_id in by_id)
    if any(topic.name is None for topic in topics):
        return None
    return tuple(dict.fromkeys(topics))


def reject_request(topics: tuple[MetadataRequestTopic, ...], version: int) -> bytes:
    """Reject the whole request: the response has no brokers, and the topics as requested."""
    rejected = [
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
        topic_blobs=[encode_metadata_topic(version, topic) for topic in rejected],
    )


def is_unknown(context: BrokerContext, topic: MetadataRequestTopic) -> bool:
    """Whether a topic was requested by an unknown name. A request by id creates nothing."""
    return topic.name is not None and topic.name not in context.metadata.topics


def is_creatable(
    context: BrokerContext, topic: MetadataRequestTopic, errors: dict[str, ErrorCode]
) -> bool:
    return is_unknown(context, topic) and topic.name not in errors


def find_topic_name(context: BrokerContext, topic: MetadataRequestTopic) -> str | None:
    """Return the name of a topic that was requested by name or by id, or None for an unknown id."""
    return topic.name if topic.name is not None else context.metadata.names.get(topic.topic_id)


def is_large_topic(context: BrokerContext, topic: MetadataRequestTopic) -> bool:
    found = context.metadata.topics.get(find_topic_name(context, topic) or "")
    return found is not None and len(found.partitions) > SMALL_MAX


async def create_unknown_topics(
    context: BrokerContext,
    topics: tuple[MetadataRequestTopic, ...],
    denials: dict[str, ErrorCode],
    options: ResponseOptions,
    requester: Requester,
) -> bytes:
    """Create up to CREATED_AT_ONCE_MAX unknown topics. The client gets LEADER_NOT_AVAILABLE for them and retries."""
    unknown = [
        topic.name for topic in topics if topic.name and is_creatable(context, topic, denials)
    ]
    errors = await create_automatically(
        context, unknown[:CREATED_AT_ONCE_MAX], requester, request="Metadata"
    )
    return await respond_in_turns(context, topics, errors | denials, options)


async def respond_when_certain(
    context: BrokerContext,
    topics: tuple[MetadataRequestTopic, ...],
    errors: dict[str, ErrorCode],
    options: ResponseOptions,
) -> bytes:
    """Respond when it is known whether the leaders under suspicion have failed."""
    names = [find_topic_name(context, topic) or "" for topic in topics]
    await context.metadata.wait_for_suspect_leaders(name for name in names if name not in errors)
    return await respond_in_turns(context, topics, errors, options)


async def respond_in_turns(
    context: BrokerContext,
    topics: tuple[MetadataRequestTopic, ...],
    errors: dict[str, ErrorCode],
    options: ResponseOptions,
) -> bytes:
    """Encode the response in several turns of the event loop."""
    encoded: list[bytes] = []
    for topic in topics:
        name = find_topic_name(context, topic)
        if name is None or name in errors:
            continue
        if is_large_topic(context, topic) and not options.topic_operations:
            await context.metadata.encode_ahead(
                name, options.version, encode_metadata_topic, options.listener
            )
    per_turn = topics_per_turn(context, options)
    for start in range(0, len(topics), per_turn):
        encoded += encode_topics(context, topics[start : start + per_turn], errors, options)
        await asyncio.sleep(0)
    return build_metadata_response(context, encoded, options)


def encode_topics(
    context: BrokerContext,
    topics: tuple[MetadataRequestTopic, ...],
    errors: dict[str, ErrorCode],
    options: ResponseOptions,
) -> list[bytes]:
    cache = context.metadata
    version = options.version
    encoded = []
    for topic in topics:
        name = find_topic_name(context, topic)
        if name is None or name not in cache.topics or name in errors:
            code = errors.get(name or "")
            missing = build_missing_topic(context, topic, code, options)
            encoded.append(encode_metadata_topic(version, missing))
        elif options.topic_operations:
            found = cache.describe(cache.topics[name], version, options.listener)
            operations = find_operations(context, name, options)
            allowed = found._replace(topic_authorized_operations=operations)
            encoded.append(encode_metadata_topic(version, allowed))
        else:
            encoded.append(
                cache.encoded_topic(name, version, encode_metadata_topic, options.listener)
            )
    return encoded


def build_metadata_response(
    context: BrokerContext, encoded: list[bytes], options: ResponseOptions
) -> bytes:
    cache = context.metadata
    brokers = []
    known = cache.brokers_and_departed() if options.is_librdkafka else cache.brokers.values()
    for broker in known:
        endpoint = cache.endpoint(broker, options.listener)
        if endpoint is not None:
            brokers.append(
                MetadataResponseBroker(
                    node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
            )
    return encode_metadata_response(
        options.version,
        brokers=tuple(brokers),
        cluster_id=cache.cluster_id,
        controller_id=cache.controller_id,
        topic_blobs=encoded,
        cluster_authorized_operations=context.security.access.cluster_operations(options.connection)
        if options.cluster_operations
        else NO_OPERATIONS,
    )


def build_missing_topic(
    context: BrokerContext,
    topic: MetadataRequestTopic,
    code: ErrorCode | None,
    options: ResponseOptions,
) -> MetadataResponseTopic:
    """Return a topic with an error: `code`, or that of an unknown topic."""
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return MetadataResponseTopic(name=topic.name, topic_id=topic.topic_id, error_code=code)
    if topic.name is None:
        return MetadataResponseTopic(
            name=None, topic_id=topic.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID
        )
    if code is None:
        is_legal = topic_name_error(topic.name) is None
        code = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
        )
    return MetadataResponseTopic(
        name=topic.name,
        error_code=code,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=find_operations(context, topic.name, options)
        if options.topic_operations
        else NO_OPERATIONS,
    )


def find_operations(context: BrokerContext, name: str, options: ResponseOptions) -> int:
    return context.security.access.authorized_operations(
        options.connection, ResourceType.TOPIC, name
    )
