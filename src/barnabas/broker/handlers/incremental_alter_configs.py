"""IncrementalAlterConfigs: changes settings of topics, brokers and loggers, and keeps the others."""

from __future__ import annotations

from barnabas.broker.config_admin.alter import alter_configs
from barnabas.broker.config_admin.operations import ResourceChange, SettingChange
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.topics import error_fields
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.alter_configs import AlterConfigsResourceResponse
from barnabas.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    context: BrokerContext,
    request: IncrementalAlterConfigsRequest,
    _: RequestHeader,
    __: Connection,
) -> IncrementalAlterConfigsResponse:
    requested = [
        ResourceChange(
            type=resource.resource_type,
            name=resource.resource_name,
            changes=tuple(SettingChange(*each) for each in resource.configs),
            keeps_others=True,
        )
        for resource in request.resources
    ]
    errors = await alter_configs(context, requested, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=tuple(
            AlterConfigsResourceResponse(*error_fields(error), each.type, each.name)
            for each, error in zip(requested, errors, strict=True)
        )
    )
