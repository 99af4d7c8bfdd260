"""DescribeConfigs: every setting of a topic or of this broker, its value, and where the value comes from."""

from __future__ import annotations

import asyncio
import logging

from barnabas.broker.connection import Connection
from barnabas.broker.parts import BrokerParts
from barnabas.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
)
from barnabas.errors import ApiError, ErrorCode, RegistryError, StorageError
from barnabas.metadata.topic_names import check_topic_name
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    ResourceType,
)

logger = logging.getLogger("barnabas.topics")


async def describe(
    parts: BrokerParts, request: DescribeConfigsRequest, header: RequestHeader, _: Connection
) -> DescribeConfigsResponse:
    def one(resource: DescribeConfigsResource) -> DescribeConfigsResult:
        try:
            entries = entries_of(parts, resource)
        except ApiError as error:
            return DescribeConfigsResult(
                error_code=error.code,
                error_message=error.message or None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        return DescribeConfigsResult(
            error_code=0,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=tuple(result(entry, request) for entry in entries),
        )

    # Any broker is asked, also one that has no replica of the topic: only the registry is sure to know.
    try:
        await parts.topics.learn(
            resource.resource_name
            for resource in dict.fromkeys(request.resources)
            if resource.resource_type == ResourceType.TOPIC
            and resource.resource_name in parts.metadata.topics
        )
    except (RegistryError, StorageError) as error:
        logger.warning("cannot read the settings of topics, telling what is known error=%s", error)
    results = []
    for resource in dict.fromkeys(request.resources):
        results.append(one(resource))
        await asyncio.sleep(0)  # hundreds of settings each: others have their turn in between
    return DescribeConfigsResponse(results=tuple(results))


def entries_of(parts: BrokerParts, resource: DescribeConfigsResource) -> tuple[ConfigEntry, ...]:
    name, names = resource.resource_name, resource.configuration_keys
    match resource.resource_type:
        case ResourceType.TOPIC:
            check_topic_name(name)
            if name not in parts.metadata.topics:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
            return describe_topic(parts.topics.overrides.get(name, {}), parts.config, names=names)
        case ResourceType.BROKER if not name:
            return describe_broker_defaults({}, names=names)
        case ResourceType.BROKER:
            if name != str(parts.config.broker_id):
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"this is broker {parts.config.broker_id}; ask broker '{name}' itself",
                )
            return describe_broker(parts.config, names=names)
        case other:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"resource type {other} is not served here")


def result(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=entry.is_default,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source) for s in synonyms
        ),
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
