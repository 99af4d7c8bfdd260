"""IncrementalAlterConfigs: changes the named settings of a topic or a broker and keeps the others."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from barnabas.wire.apis import ApiMessage
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


class IncrementalAlterConfigsRequest(ApiMessage, frozen=True, kw_only=True):
    resources: tuple[IncrementalAlterConfigsResource, ...]
    validate_only: Bool = False


class IncrementalAlterConfigsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()
