"""DescribeConfigs: the settings of topics and brokers."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Essential, Int8, Int16, Int32, Since, Until


class ResourceType(IntEnum):
    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16


class ConfigSource(IntEnum):
    """The source of a value. Among 1 to 5, the source with the smaller number takes precedence."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7


class DescribeConfigsResource(NamedTuple):
    """`configuration_keys=None` requests all settings."""

    resource_type: Int8
    resource_name: str
    configuration_keys: tuple[str, ...] | None = None


class DescribeConfigsRequest(ApiMessage, frozen=True, kw_only=True):
    resources: tuple[DescribeConfigsResource, ...]
    include_synonyms: Annotated[Bool, Since(1), Essential] = False
    include_documentation: Annotated[Bool, Since(3), Essential] = False


class DescribeConfigsSynonym(NamedTuple):
    name: str
    value: str | None
    source: Int8


class DescribeConfigsResourceResult(NamedTuple):
    name: str
    value: str | None
    read_only: Bool
    is_default: Annotated[Bool, Until(0)] = False
    config_source: Annotated[Int8, Since(1)] = -1
    is_sensitive: Bool = False
    synonyms: Annotated[tuple[DescribeConfigsSynonym, ...], Since(1)] = ()
    config_type: Annotated[Int8, Since(3)] = 0
    documentation: Annotated[str | None, Since(3)] = None


class DescribeConfigsResult(NamedTuple):
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str
    configs: tuple[DescribeConfigsResourceResult, ...] = ()


class DescribeConfigsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    results: tuple[DescribeConfigsResult, ...] = ()
