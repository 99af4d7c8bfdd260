"""IncrementalAlterConfigs: changes settings of topics, brokers and loggers, and keeps the others."""

from __future__ import annotations

from barnabas.broker.config_admin.operations import ResourceChange, SettingChange
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.handlers.alter_configs import alter_resources
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    context: BrokerContext,
    request: IncrementalAlterConfigsRequest,
    _: RequestHeader,
    connection: Connection,
) -> IncrementalAlterConfigsResponse:
    results = await alter_resources(context, request, parse_changes, connection)
    return IncrementalAlterConfigsResponse(responses=results)


def parse_changes(request: IncrementalAlterConfigsRequest) -> list[ResourceChange]:
    return [
        ResourceChange(
            type=resource.resource_type,
            name=resource.resource_name,
            changes=tuple(SettingChange(*each) for each in resource.configs),
            keeps_others=True,
        )
        for resource in request.resources
    ]
