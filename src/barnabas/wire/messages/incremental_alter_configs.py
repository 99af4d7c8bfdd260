"""IncrementalAlterConfigs: changes the named settings of a topic or a broker and keeps the others."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, NamedTuple

from msgspec import Struct

from barnabas.wire.apis import ApiKey
from barnabas.wire.codec import Bool, Int8, Int32
from barnabas.wire.messages.alter_configs import AlterConfigsResourceResponse


class ConfigOperation(IntEnum):
    """APPEND and SUBTRACT apply to list settings only."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class IncrementallyAlterableConfig(NamedTuple):
    name: str
    config_operation: Int8
    value: str | None


class IncrementalAlterConfigsResource(NamedTuple):
    resource_type: Int8
    resource_name: str
    configs: tuple[IncrementallyAlterableConfig, ...]


class IncrementalAlterConfigsRequest(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = ApiKey.INCREMENTAL_ALTER_CONFIGS
    VERSIONS: ClassVar[range] = range(2)
    FLEXIBLE_SINCE: ClassVar[int] = 1

    resources: tuple[IncrementalAlterConfigsResource, ...]
    validate_only: Bool = False


class IncrementalAlterConfigsResponse(Struct, frozen=True, kw_only=True):
    API_KEY: ClassVar[int] = ApiKey.INCREMENTAL_ALTER_CONFIGS
    VERSIONS: ClassVar[range] = range(2)
    FLEXIBLE_SINCE: ClassVar[int] = 1

    throttle_time_ms: Int32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()
