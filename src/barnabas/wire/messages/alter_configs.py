"""Changing the settings of topics and brokers: AlterConfigs, IncrementalAlterConfigs.

The older one replaces all settings of a resource: what it does not name goes back to its default. The newer one changes
what it names and leaves the rest. Resource types are those of DescribeConfigs.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, NamedTuple

from msgspec import Struct

from barnabas.wire.codec import Bool, Int8, Int16, Int32


class ConfigOperation(IntEnum):
    """APPEND and SUBTRACT are for settings that are lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class AlterableConfig(NamedTuple):
    name: str
    value: str | None


class AlterConfigsResource(NamedTuple):
    resource_type: Int8
    resource_name: str
    configs: tuple[AlterableConfig, ...]


class AlterConfigsRequest(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 33
    VERSIONS: ClassVar[range] = range(3)
    FLEXIBLE_SINCE: ClassVar[int] = 2

    resources: tuple[AlterConfigsResource, ...]
    validate_only: Bool = False


class AlterConfigsResourceResponse(NamedTuple):
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str


class AlterConfigsResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 33
    VERSIONS: ClassVar[range] = range(3)
    FLEXIBLE_SINCE: ClassVar[int] = 2

    throttle_time_ms: Int32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()


class IncrementallyAlterableConfig(NamedTuple):
    name: str
    config_operation: Int8
    value: str | None


class IncrementalAlterConfigsResource(NamedTuple):
    resource_type: Int8
    resource_name: str
    configs: tuple[IncrementallyAlterableConfig, ...]


class IncrementalAlterConfigsRequest(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 44
    VERSIONS: ClassVar[range] = range(2)
    FLEXIBLE_SINCE: ClassVar[int] = 1

    resources: tuple[IncrementalAlterConfigsResource, ...]
    validate_only: Bool = False


class IncrementalAlterConfigsResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = 44
    VERSIONS: ClassVar[range] = range(2)
    FLEXIBLE_SINCE: ClassVar[int] = 1

    throttle_time_ms: Int32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()
