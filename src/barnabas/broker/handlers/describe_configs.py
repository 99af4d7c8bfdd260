"""DescribeConfigs: the settings of a topic, of this broker or of its loggers, and where each value comes from."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping
from functools import cache, partial
from typing import NamedTuple

from barnabas.broker.config_admin.loggers import logger_levels
from barnabas.broker.config_admin.operations import require_own_id
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.security.config_access import find_config_denial
from barnabas.broker.topic_admin.topics import apply_overrides, error_fields
from barnabas.config.current import CurrentConfig
from barnabas.config.describe import (
    SettingDescription,
    describe_broker,
    describe_broker_defaults,
    describe_loggers,
    describe_topic,
)
from barnabas.errors import ApiError, ErrorCode, RegistryError, StorageError
from barnabas.metadata.topic_names import check_topic_name
from barnabas.security.acl.model import Operation
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
from barnabas.wire.primitives import STRING_MAX

logger = logging.getLogger("barnabas.topics")

UTF8_BYTES_MAX = 4

Keys = frozenset[str]


class Resource(NamedTuple):
    type: int
    name: str


async def handle(
    context: BrokerContext,
    request: DescribeConfigsRequest,
    header: RequestHeader,
    connection: Connection,
) -> DescribeConfigsResponse:
    overrides = await topic_overrides(context, request)
    describe_once = cache(partial(build_config_results, context.current_config, overrides, request))
    results = []
    turns = Turns()
    for resource, keys in await in_thread_if_large(
        len(request.resources), distinct_resources, request
    ):
        denied = find_config_denial(
            context.security.access, connection, Operation.DESCRIBE_CONFIGS, *resource
        )
        found = describe_once(resource) if denied is None else denied
        results.append(build_resource_result(resource, keys, found))
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
    """Return the settings in the registry, for each existing topic of this request. Invalid ones are left out.

    If the registry cannot be read, the settings that this broker knows are returned.
    """
    topics = context.metadata.topics
    found_names = await in_thread_if_large(len(request.resources), known_topics, request, topics)
    # Checked again, since a topic may have been deleted meanwhile.
    names = [name for name in found_names if name in topics]
    known = context.topics.overrides
    found = {name: known.get(name, {}) for name in names}
    try:
        in_registry = await context.topics.read_registry_overrides(names)
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
    current: CurrentConfig,
    overrides: Mapping[str, Mapping[str, str]],
    request: DescribeConfigsRequest,
    resource: Resource,
) -> tuple[DescribeConfigsResourceResult, ...] | ApiError:
    try:
        entries = describe_resource(current, resource, overrides)
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
    current: CurrentConfig, resource: Resource, overrides: Mapping[str, Mapping[str, str]]
) -> tuple[SettingDescription, ...]:
    name, config, dynamic = resource.name, current.value, current.dynamic
    match resource.type:
        case ResourceType.TOPIC:
            check_topic_name(name)
            if name not in overrides:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
            return describe_topic(
                overrides[name], config, dynamic=dynamic.broker, dynamic_default=dynamic.default
            )
        case ResourceType.BROKER if not name:
            return describe_broker_defaults(dynamic.default)
        case ResourceType.BROKER:
            require_own_id(config, name)
            return describe_broker(config, dynamic=dynamic.broker, dynamic_default=dynamic.default)
        case ResourceType.BROKER_LOGGER:
            require_own_id(config, name)
            return describe_loggers(logger_levels())
        case other:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"resource type {other} is not supported")


def build_config_result(
    entry: SettingDescription, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=fit_value(entry.value),
        read_only=entry.read_only,
        is_default=entry.is_default,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(name=s.name, value=fit_value(s.value), source=s.source)
            for s in synonyms
        ),
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )


def fit_value(value: str | None) -> str | None:
    """Return the value, or None if it is too long for a response. Programs that write to ZooKeeper have no limit."""
    is_long = value is not None and len(value) > STRING_MAX // UTF8_BYTES_MAX
    return None if is_long and len(str(value).encode()) > STRING_MAX else value
