"""DescribeConfigs: the settings of a topic, of this broker or of its loggers, and where each value comes from."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping
from functools import cache, partial
from typing import NamedTuple

from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.topics import apply_overrides, error_fields
from barnabas.config import BrokerConfig
from barnabas.config.describe import (
    SettingDescription,
    describe_broker,
    describe_broker_defaults,
    describe_loggers,
    describe_topic,
)
from barnabas.errors import ApiError, ErrorCode, RegistryError, StorageError
from barnabas.metadata.topic_names import check_topic_name
from barnabas.tasks import Turns, in_thread_if_large
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    ResourceType,
)

logger = logging.getLogger("barnabas.topics")

LOGGER_PREFIX = "barnabas."
ROOT_LOGGER = "root"

Keys = frozenset[str]


class Resource(NamedTuple):
    type: int
    name: str


async def handle(
    context: BrokerContext, request: DescribeConfigsRequest, header: RequestHeader, _: Connection
) -> DescribeConfigsResponse:
    overrides = await topic_overrides(context, request)
    describe_once = cache(partial(build_config_results, context.config, overrides, request))
    results = []
    turns = Turns()
    for resource, keys in await in_thread_if_large(
        len(request.resources), distinct_resources, request
    ):
        results.append(build_resource_result(resource, keys, describe_once(resource)))
        await turns.yield_if_due()
    return DescribeConfigsResponse(results=tuple(results))


def distinct_resources(request: DescribeConfigsRequest) -> dict[tuple[Resource, Keys], None]:
    """Return the requested resources without duplicates. Empty keys request all settings."""
    return {
        (
            Resource(resource.resource_type, resource.resource_name),
            frozenset(resource.configuration_keys or ()),
        ): None
        for resource in request.resources
    }


async def topic_overrides(
    context: BrokerContext, request: DescribeConfigsRequest
) -> dict[str, dict[str, str]]:
    """Return the settings that differ from the defaults, for each existing topic of this request.

    For a topic with a replica on this broker: the settings that its logs use. The broker reads them with its first
    replica of the topic, not when the znode changes. For any other topic: the settings in the registry.
    """
    topics = context.metadata.topics
    found_names = await in_thread_if_large(len(request.resources), known_topics, request, topics)
    # Checked again, since a topic may have been deleted meanwhile.
    names = [name for name in found_names if name in topics]
    known = context.topics.overrides
    found = {name: known.get(name, {}) for name in names}
    elsewhere = [
        name for name in names if not context.replicas.has_replica_of(topics[name].topic_id)
    ]
    try:
        in_registry = await context.topics.read_registry_overrides(elsewhere)
    except (RegistryError, StorageError) as error:
        logger.warning("cannot read topic settings, returning the known ones error=%s", error)
    else:
        found |= {name: settings or {} for name, settings in in_registry.items()}
    defaults = context.topics.defaults
    return {name: apply_overrides(defaults, each).overrides for name, each in found.items()}


def known_topics(request: DescribeConfigsRequest, topics: Container[str]) -> dict[str, None]:
    return dict.fromkeys(
        resource.resource_name
        for resource in request.resources
        if resource.resource_type == ResourceType.TOPIC and resource.resource_name in topics
    )


def build_config_results(
    config: BrokerConfig,
    overrides: Mapping[str, Mapping[str, str]],
    request: DescribeConfigsRequest,
    resource: Resource,
) -> tuple[DescribeConfigsResourceResult, ...] | ApiError:
    try:
        entries = describe_resource(config, resource, overrides)
    except ApiError as error:
        return error
    return tuple(build_config_result(entry, request) for entry in entries)


def build_resource_result(
    resource: Resource, keys: Keys, found: tuple[DescribeConfigsResourceResult, ...] | ApiError
) -> DescribeConfigsResult:
    if isinstance(found, ApiError):
        return DescribeConfigsResult(*error_fields(found), *resource)
    configs = tuple(entry for entry in found if not keys or entry.name in keys)
    return DescribeConfigsResult(*error_fields(None), *resource, configs)


def describe_resource(
    config: BrokerConfig, resource: Resource, overrides: Mapping[str, Mapping[str, str]]
) -> tuple[SettingDescription, ...]:
    name = resource.name
    match resource.type:
        case ResourceType.TOPIC:
            check_topic_name(name)
            if name not in overrides:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
            return describe_topic(overrides[name], config)
        case ResourceType.BROKER if not name:
            return describe_broker_defaults({})
        case ResourceType.BROKER:
            require_broker(config, name)
            return describe_broker(config)
        case ResourceType.BROKER_LOGGER:
            require_broker(config, name)
            return describe_loggers(logger_levels())
        case other:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"resource type {other} is not supported")


def require_broker(config: BrokerConfig, name: str) -> None:
    if name != str(config.broker_id):
        why = f"this is broker {config.broker_id}; send the request to broker '{name}'"
        raise ApiError(ErrorCode.INVALID_REQUEST, why)


def logger_levels() -> dict[str, int]:
    """Return the effective level of the root logger and of each logger of this project."""
    loggers = {
        name: each
        for name, each in logging.Logger.manager.loggerDict.items()
        if isinstance(each, logging.Logger) and (name + ".").startswith(LOGGER_PREFIX)
    }
    loggers[ROOT_LOGGER] = logging.getLogger()
    return {name: each.getEffectiveLevel() for name, each in loggers.items()}


def build_config_result(
    entry: SettingDescription, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
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
