"""IncrementalAlterConfigs: changes settings of topics, brokers and loggers, and keeps the others."""

from __future__ import annotations

from barnabas.broker.config_admin.alter import alter_configs
from barnabas.broker.config_admin.operations import ResourceChange, SettingChange
from barnabas.broker.connection import Connection
from barnabas.broker.context import BrokerContext
from barnabas.broker.handlers.alter_configs import ELEMENTS_COUNTED_MAX, build_alter_results
from barnabas.tasks import in_thread_if_large
from barnabas.wire.codec import count_elements
from barnabas.wire.headers import RequestHeader
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
    size = count_elements(request, ELEMENTS_COUNTED_MAX)
    requested = await in_thread_if_large(size, parse_changes, request)
    errors = await alter_configs(context, requested, validate_only=request.validate_only)
    results = await in_thread_if_large(len(errors), build_alter_results, requested, errors)
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
