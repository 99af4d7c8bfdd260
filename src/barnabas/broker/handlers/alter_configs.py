"""AlterConfigs: replaces all settings of a topic or a broker."""

from __future__ import annotations

from barnabas.broker.config_admin.alter import alter_configs
from barnabas.broker.config_admin.operations import ResourceChange, SettingChange
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.topic_admin.topics import error_fields
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from barnabas.wire.messages.incremental_alter_configs import ConfigOperation


async def handle(
    context: BrokerContext, request: AlterConfigsRequest, _: RequestHeader, __: Connection
) -> AlterConfigsResponse:
    requested = [
        ResourceChange(
            type=resource.resource_type,
            name=resource.resource_name,
            changes=tuple(
                SettingChange(each.name, ConfigOperation.SET, each.value)
                for each in resource.configs
            ),
            keeps_others=False,
        )
        for resource in request.resources
    ]
    errors = await alter_configs(context, requested, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=tuple(
            AlterConfigsResourceResponse(*error_fields(error), each.type, each.name)
            for each, error in zip(requested, errors, strict=True)
        )
    )
