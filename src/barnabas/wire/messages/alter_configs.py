"""AlterConfigs: replaces all settings of a topic or a broker.

A setting that the request does not name returns to its default. IncrementalAlterConfigs changes only the named
settings. Resource types are those of DescribeConfigs.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.wire.apis import ApiMessage
from barnabas.wire.codec import Bool, Int8, Int16, Int32


class AlterableConfig(NamedTuple):
    name: str
    value: str | None


class AlterConfigsResource(NamedTuple):
    resource_type: Int8
    resource_name: str
    configs: tuple[AlterableConfig, ...]


class AlterConfigsRequest(ApiMessage, frozen=True, kw_only=True):
    resources: tuple[AlterConfigsResource, ...]
    validate_only: Bool = False


class AlterConfigsResourceResponse(NamedTuple):
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str


class AlterConfigsResponse(ApiMessage, frozen=True, kw_only=True):
    throttle_time_ms: Int32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()
